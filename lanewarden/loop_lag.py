"""How far an event loop is behind its timers: what everything else on it waits at least."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from lanewarden.clock import Clock

TICK_MS: Final = 250
WINDOW_MS: Final = 5_000


class LoopLag:
    """A gauge of the loop that :meth:`run` runs on, to be read on any thread. Until it runs, there is no lag to see."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._due_ms: int | None = None
        self._late: deque[tuple[int, int]] = deque()
        """Ticks that came late, as (when, by how much), the latest last and the latest of all first."""

    async def run(self) -> None:
        """Tick; never returns."""
        while True:
            self._due_ms = self._clock.steady_ms() + TICK_MS
            await self._clock.sleep(TICK_MS / 1000)
            with self._lock:
                self._note(self._clock.steady_ms())

    def ms(self) -> int:
        """The longest that a tick of the last five seconds was late; a tick that is overdue now counts."""
        with self._lock:
            now_ms = self._clock.steady_ms()
            self._forget(now_ms)
            overdue_ms = 0 if self._due_ms is None else max(0, now_ms - self._due_ms)
            return max(overdue_ms, self._late[0][1] if self._late else 0)

    def _note(self, now_ms: int) -> None:
        assert self._due_ms is not None
        late_ms = now_ms - self._due_ms
        # Only a tick that no later one has outdone can be the longest of a window: so the first one is.
        while self._late and self._late[-1][1] <= late_ms:
            self._late.pop()
        if late_ms > 0:
            self._late.append((now_ms, late_ms))
        self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        while self._late and self._late[0][0] <= now_ms - WINDOW_MS:
            self._late.popleft()
