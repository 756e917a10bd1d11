"""A worker that says the same again and again, up to 300 times a second: a storm of writes of which nothing comes."""

from __future__ import annotations

import time

from lanewarden.worker import Worker

with Worker.from_environment() as worker:
    worker.progress(1, note="began")
    while True:
        worker.progress(1)  # should have been 2, 3, 4 …
        time.sleep(1 / 300)
