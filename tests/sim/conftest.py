"""What the simulations share."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """A place for the databases, in memory where there is one: the simulator crashes processes, not disks."""
    logging.disable(logging.CRITICAL)
    shared = Path("/dev/shm")
    base = shared if shared.is_dir() and os.access(shared, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as path:
        yield Path(path)
    logging.disable(logging.NOTSET)
