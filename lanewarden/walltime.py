"""Wall-clock stamps as text; pure."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(wall_ms: int) -> str:
    """Milliseconds since the Unix epoch as people and programs read them, such as ``2026-11-30T10:14:03.288Z``."""
    stamp = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
