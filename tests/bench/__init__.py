"""Benchmarks: medians and ratios against references that ran in the same minutes. Nothing here is asserted by the suite."""
