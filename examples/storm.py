"""A worker that asks what to do and never does it, up to 300 times a second: a storm of writes of which nothing comes."""

from __future__ import annotations

import time

from lanewarden.worker import Worker

with Worker.from_environment() as worker:
    worker.progress(1, note="began")
    while True:
        worker.next_directive(1_000, 200_000)  # it says "continue"; here should be a turn, and some progress
        time.sleep(1 / 300)
