"""Reductions depend on their budget and not on how long a worker runs (I10), and every trigger is above what they leave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lane_runner_svc.core.checkpoints import Failure, Written, committed, failed
from lane_runner_svc.core.ladder import RESERVE_TOKENS_DEFAULT, Ladder, Wish, defaults, ladder
from lanewarden.errors import Refusal
from lanewarden.v1 import worker_service_pb2 as pb
from tests.context_checks import ANY_WRITER, K, Turns
from tests.runner_kit import RunnerKit, make_runner

WINDOW = 200 * K
LIMIT = WINDOW - RESERVE_TOKENS_DEFAULT
BUDGET_MAX = 3
TURNS = 32
"""Beyond the end of every budget: usage and writers repeat themselves within four turns, and so fill any window."""
GROWTH_MIN = 60 * K


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How a worker lives: the tokens at its turns, what its writers come to, whether rebuilds can be inserted, over and
    over. ``grows``: each turn adds its tokens, at least :data:`GROWTH_MIN`, and a reduction takes them away.
    """

    rungs: tuple[int, ...]
    budget: int
    command: bool
    grows: bool
    tokens: tuple[int, ...]
    writers: tuple[str, ...]
    inserts: tuple[bool, ...]


def lives(rungs: st.SearchStrategy[int]) -> st.SearchStrategy[Life]:
    """Any life on a ladder of such rungs."""
    return st.builds(
        Life,
        rungs=st.lists(rungs, min_size=1, max_size=4, unique=True).map(tuple),
        budget=st.integers(0, BUDGET_MAX),
        command=st.booleans(),
        grows=st.booleans(),
        tokens=st.lists(st.integers(5 * K, WINDOW), min_size=1, max_size=2).map(tuple),
        writers=st.lists(
            st.sampled_from(["commits", "late", *(each.name for each in Failure)]), min_size=1, max_size=4
        ).map(tuple),
        inserts=st.lists(st.booleans(), min_size=1, max_size=2).map(tuple),
    )


def lived(kit: RunnerKit, life: Life, turns_max: int, *, tokens_max: int = WINDOW) -> Counter[str]:
    """What so many turns of that life came to, on a task of its own."""
    turns = Turns(
        kit,
        rungs=life.rungs,
        window_tokens=WINDOW,
        reductions_max=life.budget,
        writer=[ANY_WRITER] if life.command else [],
    )
    told = Counter[str]()
    writers, inserts, in_use = cycle(life.writers), cycle(life.inserts), 0
    for tokens in islice(cycle(life.tokens), turns_max):
        in_use = min(tokens_max, in_use + max(tokens, GROWTH_MIN) if life.grows else tokens)
        for said in answers(turns, in_use, writers):
            kind = pb.Directive.Name(said.directive)
            told[kind] += 1
            if kind == "DIRECTIVE_REBUILD":
                done = next(inserts)
                turns.report(said.directive_id, done=done, inserted_tokens=4 * K)
                in_use = 4 * K if done else in_use
            elif kind == "DIRECTIVE_COMPACT":
                turns.report(said.directive_id)
                in_use = 4 * K
    told["outstanding"] = turns.signals().count(None)
    kit.exited(turns.ref)
    return told


def answers(turns: Turns, in_use: int, writers: Iterator[str]) -> Iterator[pb.NextDirectiveResponse]:
    """One turn: whatever is written ends, and the worker asks again, until it may go on."""
    while True:
        said = turns.ask(in_use)
        yield said
        if said.directive == pb.DIRECTIVE_CHECKPOINT:
            outcome = next(writers)
            done = outcome in ("commits", "late")
            known = {} if done or outcome in ("UNCOMMITTED", "LOST") else {"failure": f"CHECKPOINT_FAILURE_{outcome}"}
            turns.report(said.directive_id, done=done, content="kept" if done else "", **known)
        elif turns.states and turns.states[-1] in ("WRITING", "TIMED_OUT"):
            outcome = next(writers)
            if outcome == "late":
                turns.kit.clock.advance(180)
                if said.directive == pb.DIRECTIVE_WAIT:
                    yield turns.ask(in_use)
            if turns.states[-1] != "SUPERSEDED":  # by a rebuild from an earlier checkpoint, while it was waited for
                turns.write(end_of(outcome))
        if said.directive not in (pb.DIRECTIVE_CHECKPOINT, pb.DIRECTIVE_WAIT):
            return


def end_of(outcome: str) -> Written:
    """What a writer comes to."""
    return committed("kept") if outcome in ("commits", "late") else failed(Failure[outcome], "failed")


def reductions(told: Counter[str]) -> int:
    """Both kinds."""
    return told["DIRECTIVE_REBUILD"] + told["DIRECTIVE_COMPACT"]


def life(*, budget: int, tokens: int, writer: str = "commits", rungs: tuple[int, ...] = (20 * K, 30 * K)) -> Life:
    """One that always does the same."""
    return Life(
        rungs=rungs,
        budget=budget,
        command=True,
        grows=False,
        tokens=(tokens,),
        writers=(writer,),
        inserts=(True,),
    )


def check_twice(lived_as: Life) -> Counter[str]:
    """n and 2n turns have the same number of reductions, within the budget; what the longer life came to."""
    with TemporaryDirectory() as directory:
        kit = make_runner(Path(directory))
        counts = [lived(kit, lived_as, turns_max) for turns_max in (TURNS, 2 * TURNS)]
        kit.close()
    short, long = (reductions(told) for told in counts)
    assert short == long <= lived_as.budget
    assert all(told["outstanding"] == 0 and told["DIRECTIVE_WRAP_UP"] <= 1 for told in counts)
    return counts[1]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(lived_as=lives(st.integers(5 * K, WINDOW)))
def test_i10_twice_the_turns_have_the_same_reductions(lived_as: Life) -> None:
    """For any ladder, any usage and writers that fail by any pattern: beyond the end of the budget n and 2n turns have the
    same number of reductions, never more than the budget, every signal is discharged, and WRAP_UP comes at most once.
    """
    event(f"{reductions(check_twice(lived_as))} reductions")


@pytest.mark.long
@pytest.mark.timeout(900)
@settings(max_examples=400, deadline=None)
@given(lived_as=lives(st.integers(5 * K, WINDOW)))
def test_i10_twice_the_turns_have_the_same_reductions_at_length(lived_as: Life) -> None:
    """The same for many more lives."""
    check_twice(lived_as)


@pytest.mark.parametrize(
    ("lived_as", "rebuilds", "compacts", "wrapped_up"),
    [
        (life(budget=3, tokens=15 * K), 0, 0, 0),
        (life(budget=0, tokens=35 * K), 0, 0, 1),
        (life(budget=3, tokens=35 * K, writer="AUTH"), 0, 1, 0),
        (life(budget=3, tokens=WINDOW, writer="AUTH"), 0, 3, 1),
        (life(budget=2, tokens=35 * K), 2, 0, 1),
        (life(budget=3, tokens=35 * K, writer="late"), 0, 1, 0),
    ],
    ids=lambda each: "" if isinstance(each, Life) else str(each),
)
def test_i10_is_not_about_nothing(lived_as: Life, rebuilds: int, compacts: int, wrapped_up: int) -> None:
    """Lives whose numbers are known: they have reductions of both kinds, and budgets that are spent."""
    told = check_twice(lived_as)
    assert (told["DIRECTIVE_REBUILD"], told["DIRECTIVE_COMPACT"], told["DIRECTIVE_WRAP_UP"]) == (
        rebuilds,
        compacts,
        wrapped_up,
    )


@settings(max_examples=6, deadline=None, derandomize=True)
@given(lived_as=lives(st.integers(5 * K, 100 * K)))
def test_i10_out_of_reach_there_are_none(lived_as: Life) -> None:
    """With the last rung, and the limit, beyond what is ever in use, whatever the writers do: no reduction at all."""
    beyond = Life(**{name: getattr(lived_as, name) for name in Life.__slots__} | {"rungs": (*lived_as.rungs, 150 * K)})
    with TemporaryDirectory() as directory:
        kit = make_runner(Path(directory))
        told = lived(kit, beyond, TURNS, tokens_max=140 * K)
        kit.close()
    assert (reductions(told), told["DIRECTIVE_WRAP_UP"]) == (0, 0)


# Small windows


def triggers(found: Ladder) -> Sequence[int]:
    """Where a reduction is called for."""
    return (*found.rungs[-1:], found.limit)


@settings(max_examples=500, deadline=None)
@given(
    window=st.integers(1 * K, 2000 * K) | st.integers(1 * K, 30 * K),
    rungs=st.lists(st.integers(1, 3000 * K), max_size=5),
    reserve=st.none() | st.integers(0, 20 * K),
    reduced=st.none() | st.integers(0, 20 * K),
)
def test_a_trigger_is_above_what_a_reduction_leaves(
    window: int, rungs: list[int], reserve: int | None, reduced: int | None
) -> None:
    """For windows of 1 K to 2 M: a ladder rises, ends at the limit at the latest, names it once, and calls for nothing that
    a reduction leaves; or it is refused, and the arithmetic of the refusal is true.
    """
    given_ = {"reserve_tokens": reserve, "reduced_tokens": reduced}
    wish = Wish(rungs=tuple(rungs), **{name: value for name, value in given_.items() if value is not None})
    limit = window - wish.reserve_tokens
    last = max((min(rung, limit) for rung in rungs or defaults(window)), default=limit)
    if min(limit, last) <= wish.reduced_tokens:
        event("refused")
        with pytest.raises(Refusal) as refused:
            ladder(window, wish)
        trigger = limit if limit <= wish.reduced_tokens else last
        assert {str(trigger), str(wish.reduced_tokens)} <= set(re.findall(r"-?\d+", refused.value.message))
        return
    event("a ladder")
    found = ladder(window, wish)
    assert found.limit == limit
    assert list(found.rungs) == sorted(set(found.rungs))
    assert all(wish.reduced_tokens < trigger <= limit for trigger in triggers(found))
    assert bool(found.rungs) == bool(rungs or window >= 25 * K)


@pytest.mark.parametrize(
    ("window", "percents"),
    [
        (24_999, []),
        (25_000, [20, 40, 60, 80]),
        (200_000, [20, 40, 60, 80]),
        (200_001, range(10, 100, 10)),
        (500_000, range(10, 100, 10)),
        (500_001, range(5, 95, 5)),
    ],
)
def test_the_default_ladder_is_that_of_the_design(window: int, percents: Sequence[int]) -> None:
    """The bands of DESIGN section 9, at their edges; what is beyond window less reserve counts as that, once."""
    limit = window - RESERVE_TOKENS_DEFAULT
    wanted = sorted({min(window * percent // 100, limit) for percent in percents})
    assert list(ladder(window, Wish()).rungs) == wanted
