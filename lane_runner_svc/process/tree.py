"""The worker's process tree as its shim sees it: signal all of it, reap all of it, know when it is empty.

Two rules keep every signal inside the tree:

1. The worker stays an unreaped zombie until all else is gone, so neither its pid nor its group's number can
   be given to somebody else while we may still signal them.
2. Anybody else is signalled through a pidfd, opened after a first look at the tree and used only if a second
   look still finds the pid there. A pid that changed hands between the looks is in one of them only, or its
   pidfd is dead.
"""

from __future__ import annotations

import contextlib
import os
import signal

from .kernel import children

_BATCH = 256
"""Processes signalled in one pass: each takes a descriptor, and the usual limit is 1024."""
_WALKED_MAX = 4096
"""Processes looked at in one pass; in a fork storm there is no last one."""


class Tree:
    """All descendants of this process, which must be a child subreaper with ``worker`` as its first child."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._worker_reaped = False
        self.reaped = 0
        """Processes other than the worker that have ended and were reaped."""

    def signal_group(self, *numbers: int) -> None:
        """Send to the worker's process group: at once to all, a member that is forking included."""
        if self._worker_reaped:
            return
        for number in numbers:
            # Nobody left, or only processes that changed their user: there is nothing more we may do.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._worker, number)

    def signal_leftovers(self, *numbers: int) -> None:
        """Send to every descendant but the worker, wherever it moved itself."""
        held: dict[int, int] = {}
        try:
            for pid in self._descendants()[:_BATCH]:
                with contextlib.suppress(OSError):
                    held[pid] = os.pidfd_open(pid)
            for pid in held.keys() & set(self._descendants()):
                for number in numbers:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(held[pid], number)
        finally:
            for fd in held.values():
                os.close(fd)

    def reap(self) -> None:
        """Collect every child that has ended, but not the worker."""
        for pid in self._others():
            with contextlib.suppress(ChildProcessError):
                self.reaped += os.waitpid(pid, os.WNOHANG)[0] == pid

    def is_empty(self) -> bool:
        """Whether nobody is left, by the kernel's word; reaps the worker, which must have ended."""
        if self._others():
            return False
        if not self._worker_reaped:
            os.waitpid(self._worker, 0)
            self._worker_reaped = True
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                self.reaped += 1
        except ChildProcessError:
            return True
        return False

    def _others(self) -> list[int]:
        return [pid for pid in children(os.getpid()) if pid != self._worker]

    def _descendants(self) -> list[int]:
        found = self._others()
        # The worker's own children are below it while it lives; later they are ours.
        found += children(self._worker) if not self._worker_reaped else []
        for pid in found:  # grows while it is walked: breadth first
            if len(found) > _WALKED_MAX:
                break
            found += children(pid)
        return found
