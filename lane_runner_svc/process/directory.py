"""An attempt's directory as the host reads it, and how the host settles one whose shim is gone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from . import files
from .cgroup import Cgroup
from .model import AttemptKey, ExitKind, ExitRecord, WorkerIdentity
from .survivors import ATTEMPT_MARK, LAUNCH_MARK, kill_survivors

_KILL_PAUSE_SECONDS = 0.01


class AttemptDirectory:
    """The files of one attempt. The methods block for short file operations."""

    def __init__(self, attempts_dir: Path, key: AttemptKey) -> None:
        self.key = key
        self.path = key.directory_under(attempts_dir)
        self.log = self.path / files.LOG
        self.socket_name = files.SOCKET

    def create(self) -> None:
        """Make it, for this user alone; no harm when it is there."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.mkdir(mode=0o700, exist_ok=True)

    def identity(self) -> WorkerIdentity | None:
        """The worker that was recorded before it ran; None when none ever ran."""
        fields = self._read(files.WORKER)
        if fields is None:
            return None
        return WorkerIdentity(pid=fields["pid"], start_ticks=fields["start_ticks"], boot_id=fields["boot_id"])

    def exit_record(self) -> ExitRecord | None:
        """How the attempt ended, once no process of it is left."""
        fields = self._read(files.EXIT)
        return None if fields is None else ExitRecord.from_json(fields)

    def try_lock(self) -> int | None:
        """The directory's lock, or None while a shim is alive. Close the descriptor to let go."""
        return files.try_lock(str(self.path / files.LOCK))

    def settle(self) -> ExitRecord:
        """With the lock held: end what a lost shim left and record it, so that no late shim starts anything.

        Blocks until nothing is left; a process that the kernel cannot end keeps it waiting, since a record
        with a living worker would be a lie. Raises OSError when the record cannot be written.
        """
        record = self.exit_record()
        if record is not None:
            return record
        identity, killed = self.identity(), 0
        if identity is not None:
            found_by = self._read(files.WORKER) or {}
            marks = {ATTEMPT_MARK: str(self.key), LAUNCH_MARK: str(found_by.get("launch_id"))}
            cgroup = Cgroup(str(found_by.get("cgroup", "")))
            while (found := kill_survivors(identity, marks, cgroup)) or cgroup.is_populated():
                killed = max(killed, found)
                cgroup.kill()
                time.sleep(_KILL_PAUSE_SECONDS)
            cgroup.remove()
        record = ExitRecord(
            key=self.key,
            kind=ExitKind.NEVER_STARTED if identity is None else ExitKind.SHIM_LOST,
            code=None,
            signal=None,
            stop_requested=False,
            ended_wall_ms=time.time_ns() // 1_000_000,
            leftovers_killed=killed,
            log_bytes=sum(part.stat().st_size for part in self.path.glob(f"{files.LOG}*")),
        )
        files.write_durably(str(self.path / files.EXIT), json.dumps(record.to_json()).encode())
        return record

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            fields: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        return fields
