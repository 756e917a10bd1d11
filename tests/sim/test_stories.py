"""Holds and rulings (H01 to H05, H07 to H12, H18) as stories. Each is played once as it is, and again with the lane runner
or the supervisor dying after every step and at commit points; a failure names the death that led to it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lane_runner_svc import emitters
from tests.sim.planted import answer_before_the_commit
from tests.sim.stories import Death, play, survives
from tests.stories import gates, rulings, waiting


def test_h01_a_question_outlives_its_worker_and_both_services(directory: Path) -> None:
    """Asked, exited with code 0 → HELD, at no cost, whatever restarts; the answer starts exactly one attempt, ruling first,
    and only that attempt's acknowledgement closes the hold.
    """
    survives(waiting.asked_and_left, directory)


def test_h02_a_waiting_worker_gets_the_ruling_on_its_stream(directory: Path) -> None:
    """The worker that waits in AwaitRuling gets the ruling there; no relaunch; acknowledged once, however often it is
    said.
    """
    survives(waiting.waited_on_the_stream, directory)


def test_h03_a_day_of_silence_costs_reminders_and_nothing_else(directory: Path) -> None:
    """24 hours without an answer: one notice, reminders after 15 minutes, then at twice the time up to 4 hours, each naming
    who owes the answer, no alert, no relaunch, and not one write to the task.
    """
    play(waiting.a_day_of_silence, directory / "day")
    survives(waiting.hours_of_silence, directory)


def test_h04_an_ack_or_an_instruction_releases_nothing(directory: Path) -> None:
    """Three acks and an instruction later: still held, the deadline where it was, the reminders begun anew; who acked, until
    when an answer is promised and since when the hold is open is in the inbox.
    """
    survives(waiting.acknowledged_three_times, directory)


def test_h05_an_answer_before_the_wait_is_not_lost(directory: Path) -> None:
    """Ruled before the worker waits, with a restart of either service between: the wait returns it at once, once."""
    survives(waiting.answered_before_the_wait, directory)


def test_h05_an_answer_in_the_moment_of_the_question_is_not_lost(directory: Path) -> None:
    """Ruled by whoever sees the very commit of the question, while its worker is about to hear of it: the same."""
    survives(waiting.answered_at_once, directory)


def test_h07_a_ruling_that_finds_no_open_hold_has_its_own_reason(directory: Path) -> None:
    """Released, canceled, unknown, of another task, of an older epoch: each is told so, finally, by the supervisor as by the
    runner, and nothing is changed.
    """
    survives(rulings.ruled_in_vain, directory)


def test_h08_what_is_no_ruling_is_refused_by_its_rule(directory: Path) -> None:
    """No decision, no words, no or another option, a gate that is not there, a role that may not: the hold stays open."""
    survives(rulings.ruled_badly, directory)


def test_h09_a_question_outlives_its_supervisor(directory: Path) -> None:
    """The supervisor is killed while a question is open: it comes back with the same id and age, and takes one ruling."""
    survives(rulings.supervisor_dies_over_a_question, directory)


def test_h10_a_ruling_comes_again_until_it_is_acknowledged(directory: Path) -> None:
    """The worker is killed between receiving and acknowledging: the next attempt gets the ruling again, and the effect of
    acknowledging it twice is one.
    """
    survives(rulings.killed_between_receive_and_acknowledge, directory)


def test_h11_nothing_completes_over_a_hold_or_a_gate(directory: Path) -> None:
    """Complete, exit 0 and a done marker over an open hold: refused with every blocker, HELD, and on_success not run until
    the task has SUCCEEDED with everything closed; then it runs, under one key however often.
    """
    survives(gates.completed_too_early, directory)


def test_h12_a_task_is_held_until_its_last_hold_is_ruled_on(directory: Path) -> None:
    """Two holds, one ruled: still HELD, by the other, and it is shown so; the second ruling starts one attempt with both."""
    survives(rulings.one_of_two_ruled, directory)


def test_h18_a_ruling_finds_the_task_that_asked(directory: Path) -> None:
    """A lane runs A, then B; the late ruling on A's hold never reaches B."""
    survives(rulings.a_late_ruling_in_a_reused_lane, directory)


def test_a_ruling_that_is_answered_before_it_is_stored_is_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: nothing is amiss as long as nobody dies; a death right after the answer shows that the ruling was lost."""
    answer_before_the_commit(monkeypatch, emitters.RULE)
    steps = play(waiting.answered_at_once, directory / "calm").steps
    death = Death(service="runner", step=steps.index("answered"))
    with pytest.raises(AssertionError, match="did not come true that the task is SUCCEEDED"):
        play(waiting.answered_at_once, directory / "death", death)


def test_a_task_without_a_question_runs_once(directory: Path) -> None:
    """The control: whatever dies, a worker is started once and its end is found."""
    survives(waiting.nothing_asked, directory)
