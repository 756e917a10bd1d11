"""Between milliseconds, in which the stores count, and the time messages of the contract."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp(wall_ms: int | None) -> Timestamp | None:
    """A wall-clock stamp, or None."""
    if wall_ms is None:
        return None
    return Timestamp(seconds=wall_ms // 1000, nanos=wall_ms % 1000 * 1_000_000)


def duration(ms: int) -> Duration:
    """A length of time, not negative."""
    return Duration(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)
