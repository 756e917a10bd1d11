"""``lanewarden demo``: a real migration that has to ask, in a pair of services of its own."""
