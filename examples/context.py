#!/usr/bin/env python3
"""The agent of examples/context.sh in Python: its context is a list of turns, and a token is a word."""

from __future__ import annotations

from lanewarden.worker import Worker

WINDOW = 400
TURNS = 8


def main() -> None:
    """Live so many turns, and look after the context between them."""
    context: list[str] = []
    with Worker.from_environment() as worker:
        for turn in range(1, TURNS + 1):
            told = worker.next_directive(words(context), WINDOW, turn=turn)
            if told.kind == "checkpoint":  # no command writes it: write it, report it, and ask again
                worker.report_directive(told.directive_id, content=written_down(context))
                told = worker.next_directive(words(context), WINDOW, turn=turn)
            if told.kind == "rebuild":
                context = [told.content]
                worker.report_directive(told.directive_id, inserted_tokens=words(context))
            elif told.kind == "compact":
                context = [summary_of(context)]
                worker.report_directive(told.directive_id)
            elif told.kind == "wrap_up":  # the budget of reductions is spent
                break
            print(f"turn {turn}: {told.kind}, {words(context)} words", flush=True)
            context.append(" ".join(map(str, range(1, 61))))  # the turn itself
        worker.complete(f"{turn} turns")


def words(context: list[str]) -> int:
    """How full it is."""
    return sum(len(each.split()) for each in context)


def written_down(context: list[str]) -> str:
    """What the next turns have to know."""
    return f"so far {len(context)} turns\n{' '.join(context[-1].split()[:20])}"


def summary_of(context: list[str]) -> str:
    """Less than that, where nothing was written down."""
    return context[-1]


if __name__ == "__main__":
    main()
