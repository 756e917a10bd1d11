"""The thread that writes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lanewarden.errors import Reason, refuse
from lanewarden.store.group import GroupCommit, Unit
from lanewarden.store.health import closed

GROUP_UNITS_MAX = 256
QUEUE_UNITS_MAX = 8_192
CLOSE_WAIT_SECONDS = 60.0

_STOP = None


class WriterThread:
    """Takes queued units in groups, commits each group once, and tells every loop once per group."""

    def __init__(self, commits: GroupCommit) -> None:
        self._commits = commits
        self._queue: queue.SimpleQueue[Unit[Any] | None] = queue.SimpleQueue()
        self._closing = False
        # Held for the two instructions of "still open? then enqueue", so that no unit lands behind the stop.
        self._gate = threading.Lock()
        # A daemon, so that a service that fails on its way out is not kept alive by its store.
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, unit: Unit[Any]) -> None:
        """Queue a unit. Raises the refusals LIMIT_REACHED and SHUTTING_DOWN."""
        with self._gate:
            if self._closing:
                raise closed()
            if self._queue.qsize() >= QUEUE_UNITS_MAX:
                raise refuse(
                    Reason.LIMIT_REACHED,
                    "too many writes are waiting; send the request again later",
                    limit=QUEUE_UNITS_MAX,
                )
            self._queue.put(unit)

    def put_and_wait(self, unit: Unit[Any]) -> None:
        """Queue a unit and block until its group is over."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a unit of work cannot wait for another one")
        unit.future = done = concurrent.futures.Future[None]()
        self.put(unit)
        done.result()

    def close(self) -> bool:
        """Write what is queued, then end; whether the thread has ended within its bound."""
        with self._gate:
            if not self._closing:
                self._closing = True
                self._queue.put(_STOP)
        self._thread.join(CLOSE_WAIT_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            units, stopping = self._take()
            if units:
                self._commits.run(units)
                _deliver(units)
                self._commits.tell()

    def _take(self) -> tuple[list[Unit[Any]], bool]:
        """Wait for one unit, then take those that came meanwhile; and whether the stop was among them."""
        units: list[Unit[Any]] = []
        first = self._queue.get()
        if first is _STOP:
            return units, True
        units.append(first)
        with contextlib.suppress(queue.Empty):
            while len(units) < GROUP_UNITS_MAX:
                unit = self._queue.get_nowait()
                if unit is _STOP:
                    return units, True
                units.append(unit)
        return units, False


def _deliver(units: Sequence[Unit[Any]]) -> None:
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Unit[Any]]] = defaultdict(list)
    for unit in units:
        if unit.loop is not None:
            by_loop[unit.loop].append(unit)
        elif isinstance(unit.future, concurrent.futures.Future):
            unit.future.set_result(None)
    for loop, its_units in by_loop.items():
        # A loop that was closed has nobody left to tell; what was committed stays committed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, loop, its_units)


def _resolve(loop: asyncio.AbstractEventLoop, units: Sequence[Unit[Any]]) -> None:
    for unit in units:
        if unit.error is None:
            _call_back(loop, unit)
        future = unit.future
        if not isinstance(future, asyncio.Future) or future.done():
            continue  # its caller was canceled while it waited; the unit is committed all the same
        if unit.error is None:
            future.set_result(unit.result)
        else:
            future.set_exception(unit.error)


def _call_back(loop: asyncio.AbstractEventLoop, unit: Unit[Any]) -> None:
    for callback in unit.callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the unit is committed, and other callers wait behind it
            loop.call_exception_handler({"message": f"after_commit of {unit.emitter} failed", "exception": error})
