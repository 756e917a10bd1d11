"""When an open hold reminds, whom it falls to next, and when it has waited too long; pure.

Nothing here decides: a deadline parks the task and alerts, a reminder reminds, and the hold stays as open as it was
(DESIGN section 6). ``*_ms`` are steady milliseconds of the runner, whose clock is the only one that counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lane_runner_svc.core.holds import Hold
from lanewarden.records import replace

REMINDER_MS_DEFAULT: Final = 15 * 60 * 1000
REMINDER_MS_MAX: Final = 4 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approver:
    """One who owes rulings, told ``after_ms`` after the hold was opened."""

    identity: str
    after_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a task's holds wait. Approvers are in the order in which they are told."""

    reminder_ms: int = REMINDER_MS_DEFAULT
    deadline_ms: int | None = None
    approvers: tuple[Approver, ...] = ()


def begin(hold: Hold, patience: Patience, now_ms: int) -> Hold:
    """A hold that has just been opened, with its timers set; who is told at once owes the ruling from now on."""
    began = replace(
        hold,
        opened_ms=now_ms,
        deadline_ms=None if patience.deadline_ms is None else now_ms + patience.deadline_ms,
        next_reminder_ms=now_ms + patience.reminder_ms,
    )
    return fire(began, patience, now_ms)


def fire(hold: Hold, patience: Patience, now_ms: int) -> Hold:
    """The hold after everything that is due by ``now_ms``. A time in which nobody looked makes one reminder, not many."""
    if not hold.open:
        return replace(hold, timer_ms=None)
    fired = _remind(_fall_to_next(hold, patience, now_ms), patience, now_ms)
    if fired.deadline_ms is not None and fired.deadline_ms <= now_ms:
        fired = replace(fired, expired=True)
    return replace(fired, timer_ms=_next_timer_ms(fired, patience))


def restart_reminders(hold: Hold, patience: Patience, now_ms: int) -> Hold:
    """After an ack: the cadence begins anew. The deadline and who owes the ruling stay."""
    restarted = replace(hold, reminder_step=0, next_reminder_ms=now_ms + patience.reminder_ms)
    return replace(restarted, timer_ms=_next_timer_ms(restarted, patience))


def extend(hold: Hold, patience: Patience, *, deadline_ms: int) -> Hold:
    """A new deadline, at the steady time ``deadline_ms``; one that had passed is forgiven."""
    extended = replace(hold, deadline_ms=deadline_ms, expired=False)
    return replace(extended, timer_ms=_next_timer_ms(extended, patience))


def _remind(hold: Hold, patience: Patience, now_ms: int) -> Hold:
    if hold.next_reminder_ms is None or hold.next_reminder_ms > now_ms:
        return hold
    interval_ms = min(REMINDER_MS_MAX, patience.reminder_ms << min(hold.reminder_step + 1, 32))
    return replace(
        hold,
        reminders=hold.reminders + 1,
        reminder_step=hold.reminder_step + 1,
        next_reminder_ms=now_ms + interval_ms,
    )


def _fall_to_next(hold: Hold, patience: Patience, now_ms: int) -> Hold:
    told = hold.approvers_told
    while told < len(patience.approvers) and hold.opened_ms + patience.approvers[told].after_ms <= now_ms:
        told += 1
    if told == hold.approvers_told:
        return hold
    return replace(hold, approvers_told=told, owed_by=patience.approvers[told - 1].identity)


def _next_timer_ms(hold: Hold, patience: Patience) -> int | None:
    times = [hold.next_reminder_ms]
    if not hold.expired:
        times.append(hold.deadline_ms)
    if hold.approvers_told < len(patience.approvers):
        times.append(hold.opened_ms + patience.approvers[hold.approvers_told].after_ms)
    return min((time for time in times if time is not None), default=None)
