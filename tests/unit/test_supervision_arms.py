"""``choose``: the table against an oracle, and each arm removed, moved and narrowed. ``explain`` and ``diagnose``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import supervisor_svc
from supervisor_svc.core.arms import ARMS, Action, Arm, choose
from supervisor_svc.core.diagnosis import CAUSE_BYTES_MAX, Diagnosis, diagnose, settle
from supervisor_svc.core.explanation import explain
from supervisor_svc.core.supervision import SupervisionConfig
from supervisor_svc.core.verdict import UNHEALTHY, Verdict
from supervisor_svc.core.view import TERMINAL, Author, State, Text, View
from tests import supervision_oracle
from tests.unit.test_supervision_verdict import CONFIG, LIVE, NOW_MS, RESTING, SILENT, views

Arms = Sequence[Arm]


def decisions() -> Iterator[tuple[View, Verdict, SupervisionConfig]]:
    """Every verdict with every state, hold, pause, claim, life and wake, and relaunches below, at and above two caps."""
    flags = [(False, True)] * 5
    for cap, state, verdict, below in product((0, 2), State, Verdict, (-1, 0, 1)):
        for held, paused, filed, woken, live in product(*flags):
            view = replace(
                LIVE,
                state=state,
                worker_alive=live,
                open_holds=("e1",) if held else (),
                pauses=("TAKEOVER",) if paused else (),
                incident="t1/1/stale" if filed else "",
                woken=woken,
                relaunches=max(0, cap + below),
            )
            yield view, verdict, replace(CONFIG, relaunches_max=cap)


def wrong(arms: Arms) -> list[tuple[View, Verdict, SupervisionConfig]]:
    """Where these arms decide otherwise than the oracle, or not at all."""
    return [each for each, action in right() if chosen(arms, *each) != action]


@cache
def right() -> list[tuple[tuple[View, Verdict, SupervisionConfig], str]]:
    """Every decision and the oracle's word on it."""
    return [(each, supervision_oracle.action(each[0], each[1].name, each[2])) for each in decisions()]


def chosen(arms: Arms, view: View, verdict: Verdict, config: SupervisionConfig) -> str:
    try:
        return choose(view, verdict, config, arms).name
    except StopIteration:
        return "no arm matches"


def test_s06_the_whole_table_is_as_the_oracle_says() -> None:
    """Verdict, state, hold, pause, claim, wake, relaunches around the cap and life, each with each."""
    assert wrong(ARMS) == []
    assert sum(1 for _ in decisions()) == 2 * len(State) * len(Verdict) * 3 * 32


def test_the_arms_are_those_of_the_design_in_their_order() -> None:
    """Seven, by name."""
    assert [arm.name for arm in ARMS] == ["terminal", "report", "held", "filed", "wake", "relaunch", "settle"]


def test_the_readme_has_every_verdict_and_every_arm_in_its_order() -> None:
    """The two tables that people read are those that decide."""
    text = (Path(supervisor_svc.__file__).parent / "README.md").read_text(encoding="utf-8")
    _, verdicts, arms = re.split(r"^\| (?:verdict|arm) \|.*\n\|.*\n", text, flags=re.MULTILINE)
    assert re.findall(r"^\| ([A-Z]+) \|", verdicts, flags=re.MULTILINE) == [verdict.value for verdict in Verdict]
    assert re.findall(r"^\| ([a-z]+) \|", arms, flags=re.MULTILINE) == [arm.name for arm in ARMS]


# Each arm's own cases: a mutant of an arm fails at least one of them and none of any other's.

SHOWN = (Verdict.HEALTHY, Verdict.UNKNOWN, Verdict.QUEUED, Verdict.UNREACHABLE)
ACCUSED = sorted(UNHEALTHY, key=str)
HELD = replace(SILENT, open_holds=("e1",), state=State.HELD)
FILED = replace(SILENT, incident="t1/1/stale")
PARKED = replace(RESTING, input_ms=0)
SPENT = replace(SILENT, relaunches=2)

CASES: dict[str, list[tuple[View, Verdict, Action]]] = {
    "terminal": [
        (replace(SILENT, state=state), verdict, Action.NOTHING)
        for state in sorted(TERMINAL, key=str)
        for verdict in (Verdict.HEALTHY, Verdict.STALE)
    ],
    "report": [
        (replace(view, relaunches=relaunches), verdict, Action.SHOW)
        for verdict in SHOWN
        for relaunches in (0, 2)
        for view in (LIVE, HELD, replace(FILED, worker_alive=False))
    ],
    "held": [
        (replace(view, relaunches=relaunches), verdict, Action.REMIND)
        for view in (HELD, replace(HELD, worker_alive=False), replace(FILED, open_holds=("e1",)))
        for verdict in (Verdict.HELD, *ACCUSED)
        for relaunches in (0, 2)
    ]
    + [
        (replace(view, pauses=(pause,)), verdict, Action.REMIND)
        for view in (SILENT, SPENT, PARKED, FILED)
        for pause in ("OPERATOR", "TAKEOVER")
        for verdict in ACCUSED
    ],
    "filed": [
        (replace(FILED, relaunches=relaunches, woken=woken), verdict, Action.NOTHING)
        for verdict in ACCUSED
        for relaunches in (0, 1, 2, 3)
        for woken in (False, True)
    ],
    "wake": [(replace(PARKED, relaunches=relaunches), Verdict.PARKED, Action.WAKE) for relaunches in (0, 1, 2, 3)],
    "relaunch": [
        (replace(SILENT, relaunches=relaunches, woken=woken, worker_alive=alive), verdict, Action.RELAUNCH)
        for verdict in ACCUSED
        for relaunches in (0, 1)
        for alive in (False, True)
        for woken in (False, True)
        if woken or verdict is not Verdict.PARKED
    ],
    "settle": [
        (replace(SILENT, relaunches=relaunches, woken=True, worker_alive=alive), verdict, Action.SETTLE)
        for verdict in ACCUSED
        for relaunches in (2, 3)
        for alive in (False, True)
    ],
}
PLACES = {arm.name: place for place, arm in enumerate(ARMS)}


def failing(arms: Arms) -> set[str]:
    """The arms of whose cases some fail."""
    return {
        name
        for name, cases in CASES.items()
        if any(chosen(arms, view, verdict, CONFIG) != action.name for view, verdict, action in cases)
    }


def without(name: str) -> Arms:
    """The table without an arm."""
    return [arm for arm in ARMS if arm.name != name]


def moved(name: str, place: int) -> Arms:
    """The table with an arm elsewhere."""
    arms = list(without(name))
    arms.insert(place, ARMS[PLACES[name]])
    return arms


def changed(name: str, matches: Callable[[View, Verdict, SupervisionConfig], bool]) -> Arms:
    """The table with another condition of an arm."""
    return [replace(arm, matches=matches) if arm.name == name else arm for arm in ARMS]


def narrowed(name: str, excluded: Callable[[View, Verdict, SupervisionConfig], bool]) -> Arms:
    """The table with an arm that leaves something out."""
    whole = ARMS[PLACES[name]].matches
    return changed(name, lambda *facts: whole(*facts) and not excluded(*facts))


NARROWER: list[tuple[str, str, Callable[[View, Verdict, SupervisionConfig], bool]]] = [
    *[("terminal", state.name, lambda v, d, c, state=state: v.state is state) for state in sorted(TERMINAL, key=str)],
    ("terminal", "only when nothing is wrong", lambda v, d, c: d is not Verdict.HEALTHY),
    *[("report", each.name, lambda v, d, c, each=each: d is each) for each in SHOWN],
    ("report", "a spent budget", lambda v, d, c: v.relaunches >= c.relaunches_max),
    ("held", "only with a live worker", lambda v, d, c: not v.worker_alive),
    ("held", "a stale one", lambda v, d, c: d is Verdict.STALE),
    ("held", "a spent budget", lambda v, d, c: v.relaunches >= c.relaunches_max),
    ("held", "a pause", lambda v, d, c: not v.open_holds),
    ("held", "a takeover", lambda v, d, c: "TAKEOVER" in v.pauses),
    ("held", "a filed one", lambda v, d, c: v.incident != ""),
    ("filed", "relaunches left, as after a raised cap", lambda v, d, c: v.relaunches < c.relaunches_max),
    ("filed", "never woken", lambda v, d, c: not v.woken),
    *[("filed", each.name, lambda v, d, c, each=each: d is each) for each in ACCUSED],
    ("wake", "a spent budget", lambda v, d, c: v.relaunches >= c.relaunches_max),
    ("wake", "relaunched before", lambda v, d, c: v.relaunches > 0),
    *[("relaunch", each.name, lambda v, d, c, each=each: d is each) for each in ACCUSED],
    ("relaunch", "the last one", lambda v, d, c: v.relaunches == c.relaunches_max - 1),
    ("relaunch", "a live worker", lambda v, d, c: v.worker_alive),
    *[("settle", each.name, lambda v, d, c, each=each: d is each) for each in ACCUSED],
    ("settle", "above the cap", lambda v, d, c: v.relaunches > c.relaunches_max),
    ("settle", "no worker", lambda v, d, c: not v.worker_alive),
]
WIDER: list[tuple[str, str, Callable[[View, Verdict, SupervisionConfig], bool]]] = [
    ("wake", "a second time", lambda v, d, c: d is Verdict.PARKED),
    ("wake", "a stale one", lambda v, d, c: d in UNHEALTHY and not v.woken),
    ("relaunch", "one more than the cap", lambda v, d, c: d in UNHEALTHY and v.relaunches <= c.relaunches_max),
    ("relaunch", "without a cap", lambda v, d, c: d in UNHEALTHY),
    ("filed", "of whatever epoch", lambda v, d, c: True),
    ("report", "an exited one", lambda v, d, c: d not in UNHEALTHY or d is Verdict.EXITED),
]


def test_every_case_holds_on_the_real_table() -> None:
    """The control of all mutants below."""
    assert failing(ARMS) == set()


@pytest.mark.parametrize("name", PLACES)
def test_s06_no_arm_can_be_removed(name: str) -> None:
    """The arm's own cases fail without it; every other arm's still hold."""
    assert failing(without(name)) == {name}
    assert wrong(without(name))


@pytest.mark.parametrize("place", range(len(ARMS) - 1))
def test_s06_no_two_neighbours_can_change_places(place: int) -> None:
    """The earlier arm's own cases fail once the later one comes first; every other arm's still hold."""
    swapped = moved(ARMS[place].name, place + 1)
    assert failing(swapped) == {ARMS[place].name}
    assert wrong(swapped)


@pytest.mark.parametrize(
    ("name", "place"), [(name, to) for name, place in PLACES.items() for to in range(len(ARMS)) if to != place]
)
def test_s06_no_arm_can_be_moved(name: str, place: int) -> None:
    """Anywhere else in the table it decides something wrong."""
    assert failing(moved(name, place))
    assert wrong(moved(name, place))


@pytest.mark.parametrize(("name", "what", "excluded"), NARROWER, ids=lambda each: each if isinstance(each, str) else "")
def test_s06_no_arm_can_be_narrowed(name: str, what: str, excluded: Callable[..., bool]) -> None:
    """Whatever an arm leaves out, its own cases fail, and every other arm's still hold."""
    assert failing(narrowed(name, excluded)) == {name}
    assert wrong(narrowed(name, excluded))


@pytest.mark.parametrize(("name", "what", "matches"), WIDER, ids=lambda each: each if isinstance(each, str) else "")
def test_s06_no_arm_can_be_widened(name: str, what: str, matches: Callable[..., bool]) -> None:
    """An arm that takes more takes it from a later one, whose cases fail; its own still hold."""
    assert name not in failing(changed(name, matches))
    assert failing(changed(name, matches))
    assert wrong(changed(name, matches))


def test_s06_a_raised_cap_resurrects_nothing() -> None:
    """Cap 2, spent, filed; then the cap is 3: nothing happens. Without the claim there would be another relaunch."""
    raised = replace(CONFIG, version=2, relaunches_max=3)
    filed = replace(SPENT, incident="t1/1/stale")
    assert choose(filed, Verdict.STALE, CONFIG) is Action.NOTHING
    assert choose(filed, Verdict.STALE, raised) is Action.NOTHING
    assert choose(SPENT, Verdict.STALE, raised) is Action.RELAUNCH
    assert choose(replace(SPENT, state=State.SETTLED), Verdict.HEALTHY, raised) is Action.NOTHING


@settings(max_examples=300, deadline=None)
@given(views, st.sampled_from(Verdict))
def test_choose_is_total_and_acts_on_the_unhealthy_only(view: View, verdict: Verdict) -> None:
    """Whatever the facts: an action; and one that touches the task only under a verdict that accuses it."""
    action = choose(view, verdict, CONFIG)
    assert action in (Action.NOTHING, Action.SHOW, Action.REMIND) or verdict in UNHEALTHY


# explain


@settings(max_examples=200, deadline=None)
@given(views, st.integers(-(10**15), 10**15))
def test_explain_says_why_of_each_arm_up_to_the_one_that_matched(view: View, now_ms: int) -> None:
    """The arm that decides, every arm before it with a reason, and what choose and classify say."""
    explained = explain(view, now_ms, CONFIG)
    assert choose(view, explained.judgement.verdict, CONFIG) is explained.arm.action
    assert [arm.name for arm, _ in explained.passed] == [arm.name for arm in ARMS[: PLACES[explained.arm.name]]]
    assert all(because for _, because in explained.passed)
    assert explained.config_version == CONFIG.version


def test_explain_names_the_facts_and_their_authors() -> None:
    """A stale session whose relaunches are spent: every earlier arm with its fact, and whose word each fact is."""
    mishap = Text(author=Author.RUNNER, text="attempt 1: the worker was killed by SIGKILL")
    view = replace(SPENT, attempt=3, note="step 7", mishaps=(mishap,), last_seen="12:00")
    explained = explain(view, NOW_MS, CONFIG)
    assert explained.judgement.because == "no progress for 900 s, allowed 900 s"
    assert [(arm.name, because) for arm, because in explained.passed] == [
        ("terminal", "it has not ended: RUNNING"),
        ("report", "it is STALE"),
        ("held", "no hold is open, and nobody has paused it"),
        ("filed", "no incident is claimed for epoch 1"),
        ("wake", "it is STALE"),
        ("relaunch", "2 of 2 relaunches of epoch 1 are spent"),
    ]
    assert (explained.arm.name, explained.arm.action) == ("settle", Action.SETTLE)
    assert [(fact.name, fact.value, fact.author.name) for fact in explained.facts] == [
        ("state", "RUNNING", "RUNNER"),
        ("attempt", "3 of epoch 1", "RUNNER"),
        ("worker", "alive", "RUNNER"),
        ("open holds", "none", "RUNNER"),
        ("progress", "7 step 7", "WORKER"),
        ("silence", "no progress for 900 s, allowed 900 s", "SUPERVISOR"),
        ("woken", "no", "RUNNER"),
        ("relaunches", "2 of 2", "RUNNER"),
        ("incident", "none", "RUNNER"),
        ("runner", "reachable, last seen 12:00", "SUPERVISOR"),
        ("said", "attempt 1: the worker was killed by SIGKILL", "RUNNER"),
    ]


def test_s10_an_unknown_progress_is_shown_as_that() -> None:
    """Not as none, and not as zero."""
    explained = explain(replace(SILENT, sensor=False, progress=None, progressed_ms=None), NOW_MS, CONFIG)
    assert ("progress", "UNKNOWN: no sensor") in [(fact.name, fact.value) for fact in explained.facts]
    assert "its progress is unknown" in explained.judgement.because


# diagnose and settle

ERROR = Text(author=Author.WORKER, text="ImportError: no module named pumps")
OURS = settle(Diagnosis(author=None, cause="")).summary


@pytest.mark.parametrize(
    "view",
    [
        replace(LIVE, mishaps=(ERROR,)),
        replace(LIVE, mishaps=(ERROR,), woken=True),
        replace(LIVE, mishaps=(ERROR, Text(author=Author.SUPERVISOR, text="relaunched")), relaunches=1, attempt=2),
        replace(LIVE, mishaps=(Text(author=Author.SUPERVISOR, text="relaunched: stale"), ERROR), relaunches=1),
        replace(LIVE, mishaps=(Text(author=Author.OPERATOR, text="canceled by ann"), ERROR)),
    ],
    ids=["never touched", "woken", "relaunched", "relaunched before", "touched by an operator"],
)
def test_s05_the_workers_error_is_what_is_diagnosed(view: View) -> None:
    """Never touched, after a wake, after a relaunch: in the worker's own words."""
    assert diagnose(view) == Diagnosis(author=Author.WORKER, cause=ERROR.text)


def test_s05_a_supervisors_sentence_is_known_by_its_author_and_not_by_its_looks() -> None:
    """A worker that says what a supervisor says is quoted; the supervisor that says it is not."""
    assert diagnose(replace(LIVE, mishaps=(replace(ERROR, text=OURS),))).cause == OURS
    settled = replace(LIVE, state=State.SETTLED, mishaps=(Text(author=Author.SUPERVISOR, text=OURS),))
    assert diagnose(settled) == Diagnosis(author=None, cause="")


def test_s05_the_oldest_cause_is_kept_and_a_note_is_the_last_resort() -> None:
    """What follows from the first mishap does not replace it; a note is quoted where there is no mishap at all."""
    later = Text(author=Author.RUNNER, text="attempt 3 was lost")
    assert diagnose(replace(LIVE, mishaps=(ERROR, later), note="step 7")).cause == ERROR.text
    assert diagnose(replace(LIVE, mishaps=(Text(author=Author.RUNNER, text=" \n"), ERROR))).cause == ERROR.text
    assert diagnose(replace(LIVE, note="step 7")) == Diagnosis(author=Author.WORKER, cause="step 7")


def settled(view: View) -> View:
    """The task once it has been settled, as its runner reports it."""
    summary = Text(author=Author.SUPERVISOR, text=settle(diagnose(view)).summary)
    return replace(view, state=State.SETTLED, worker_alive=False, mishaps=(*view.mishaps, summary))


@settings(max_examples=100, deadline=None)
@given(views)
def test_s04_settling_again_changes_no_byte(view: View) -> None:
    """50 times over, also where nothing ever stopped it: summary and diagnosis are those of the first time."""
    first = settle(diagnose(view))
    for _ in range(50):
        view = settled(view)
        assert settle(diagnose(view)) == first


@given(st.text(alphabet="aß…𝄞\n", min_size=1, max_size=6000), st.sampled_from([Author.WORKER, Author.RUNNER]))
def test_a_diagnosis_is_bounded(text: str, author: Author) -> None:
    """Whatever a worker has said, summary and diagnosis fit their 4 KiB, and a quotation that fits is whole."""
    view = replace(LIVE, mishaps=(Text(author=author, text=text),))
    settlement = settle(diagnose(view))
    assert max(len(settlement.summary.encode()), len(settlement.diagnosis.encode())) <= 4096
    if text.strip() and len(text.encode()) <= CAUSE_BYTES_MAX:
        assert settlement.diagnosis.endswith(text)
