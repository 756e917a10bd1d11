"""``look_again_ms``: nothing changes before it by itself."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor_svc.core.deadline import look_again_ms
from supervisor_svc.core.verdict import Verdict, classify
from supervisor_svc.core.view import View
from tests.unit.test_supervision_verdict import CONFIG, LIVE, NOW_MS, SILENT, views

EVER_MS = 10**12


@settings(max_examples=400, deadline=None)
@given(views, st.floats(0, 1, exclude_max=True))
@example(SILENT, 0.0)
def test_no_verdict_changes_before_the_next_look(view: View, share: float) -> None:
    """At any moment between now and the next look, the verdict is what it is now; without a next look it stays for ever."""
    again_ms = look_again_ms(view, NOW_MS, CONFIG)
    end_ms = EVER_MS if again_ms is None else again_ms - 1
    assert end_ms >= NOW_MS
    between_ms = NOW_MS + int((end_ms - NOW_MS) * share)
    now = classify(view, NOW_MS, CONFIG)
    assert {classify(view, each, CONFIG) for each in (between_ms, end_ms)} == {now}


@settings(max_examples=200, deadline=None)
@given(views)
def test_looking_again_comes_to_an_end(view: View) -> None:
    """A task of which nothing is heard is looked at a few times, and then no more."""
    looks, now_ms = 0, NOW_MS
    while (again_ms := look_again_ms(view, now_ms, CONFIG)) is not None:
        looks, now_ms = looks + 1, again_ms
        assert looks <= 4


def test_the_next_look_is_the_moment_of_silence() -> None:
    """A worker that makes no progress from now on is looked at when it becomes stale, and not before."""
    again_ms = look_again_ms(replace(LIVE, progressed_ms=NOW_MS), NOW_MS, CONFIG)
    assert again_ms == NOW_MS + CONFIG.stale_ms
    assert classify(replace(LIVE, progressed_ms=NOW_MS), again_ms, CONFIG) is Verdict.STALE
