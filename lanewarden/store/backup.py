"""Copies of a live database."""

from __future__ import annotations

import os
from pathlib import Path

from lanewarden.store import engine
from lanewarden.store.opening import sync_directory


def copy_database(source: Path, target: Path) -> None:
    """Copy through SQLite's online backup, synced and renamed into place whole.

    Raises :class:`FileExistsError` if there is something at ``target``, :class:`OSError` if it cannot be
    written.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists; a backup never replaces anything")
    partial = target.with_name(target.name + ".part")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    reader, writer = engine.connect_reader(source), engine.connect_copy(partial)
    try:
        # All pages in one step are one snapshot; more steps would start over at every commit in between.
        reader.backup(writer, pages=-1)
    finally:
        reader.close()
        writer.close()
    partial.rename(target)
    sync_directory(target.parent)
