"""S09: which storms over a task its runner holds against it, and which are somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.loop import storms
from lanewarden.ledger import FindingKind
from tests.ledger_checks import Writes

INPUT, TAKEN, DIRECTIVE = emitters.INPUT.name, emitters.TAKEN.name, emitters.DIRECTIVE.name
BULK = {INPUT: 40, TAKEN: 20, emitters.DELIVER.name: 10}
"""Ten inputs a second, each taken as it comes."""


def told(rows_per_second: Mapping[str, int], *, versions: bool = False) -> list[str]:
    """The emitters that the supervisor is told of when each of these has written for ten seconds."""
    writes = Writes()
    moved = [("task", "t1", False)] * 10 if versions else []
    for _ in range(10):
        writes.ledger.record_all(
            [(("task", "t1", emitter, ""), rows) for emitter, rows in rows_per_second.items()], moved
        )
        writes.clock.advance(1)
    assert writes.found(), "it is a finding, whoever it is told to"
    return [each.emitter for each in storms.storms(writes.ledger)]


def what_people_send_is_not_the_workers() -> None:
    """A bulk of inputs and their taking, instructions of a bot in a loop, pauses and resumes: no storm of the worker, by
    rows or by versions. The same beside a storm of the worker hides none of it.
    """
    for theirs in (BULK, {emitters.INSTRUCT.name: 100}, {emitters.PAUSE.name: 30, emitters.RESUME.name: 30}):
        for versions in (False, True):
            assert told(theirs, versions=versions) == []
    assert told(BULK | {DIRECTIVE: 25}) == [DIRECTIVE]
    assert told({INPUT: 300, DIRECTIVE: 25}) == [DIRECTIVE]


def a_worker_that_takes_what_nobody_sends_is_a_storm() -> None:
    """The same message again and again, or anything else of its own."""
    assert told({TAKEN: 40}) == [TAKEN]
    assert told({DIRECTIVE: 40}) == [DIRECTIVE]
    assert told({DIRECTIVE: 10, INPUT: 5}, versions=True) == [DIRECTIVE]
    assert told({f"lane_runner.site.n{n}": 5 for n in range(6)}), "many of its own are together too much"


CHECKS = (what_people_send_is_not_the_workers, a_worker_that_takes_what_nobody_sends_is_a_storm)


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__)
def test_s09_a_storm_is_its_tasks_unless_people_send_it(check: Callable[[], None]) -> None:
    """Each check, on the build as it is; see there for the guarantee."""
    check()


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("OF_PEOPLE", frozenset(), what_people_send_is_not_the_workers),
        ("OF_PEOPLE", emitters.OF_PEOPLE | {TAKEN}, a_worker_that_takes_what_nobody_sends_is_a_storm),
    ],
    ids=["people are workers", "taking is never the worker's"],
)
def test_s09_mutants_are_killed(
    name: str, value: object, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the set of what people do, and with too much in it, a check fails."""
    monkeypatch.setattr(emitters, name, value)
    with pytest.raises(AssertionError):
        check()


def test_versions_are_told_as_versions() -> None:
    """The kind of finding that moves slowly is among those that are told."""
    writes = Writes()
    for _ in range(60):
        writes.ledger.record_all([(("task", "t1", DIRECTIVE, ""), 1)], [("task", "t1", False)])
        writes.clock.advance(5)
    assert writes.kinds() == [FindingKind.NO_PROGRESS]
    assert [each.task_id for each in storms.storms(writes.ledger)] == ["t1"]
