"""``settle(diagnose(view))``: what is written when a task is given up; pure, and a fixed point.

A diagnosis quotes a worker or a runner. What a supervisor or an operator has written is never read for it, however it looks,
so no diagnosis ever quotes another, and to repeat it changes no byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from supervisor_svc.core.view import Author, View

CAUSE_BYTES_MAX: Final = 3072
"""Leaves room for the words around it: a summary and a diagnosis are 4 KiB at most (DESIGN section 13)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The oldest cause that is known of a task's trouble in its present epoch, and whose words it is in.

    ``author`` is None, and ``cause`` empty, where neither the worker nor the runner has said anything.
    """

    author: Author | None
    cause: str

    def __str__(self) -> str:
        if self.author is None:
            return "neither the worker nor the runner has named a cause"
        return f"the {self.author.value.lower()} said: {self.cause}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What is stored with a settled task: the supervisor's own sentence, and the diagnosis in a field of its own."""

    summary: str
    diagnosis: str


def diagnose(view: View) -> Diagnosis:
    """The oldest mishap of the epoch in the words of the worker or the runner; the worker's last note if there is none."""
    witnesses = [text for text in view.mishaps if text.author in (Author.WORKER, Author.RUNNER) and text.text.strip()]
    if witnesses:
        return Diagnosis(author=witnesses[0].author, cause=_bounded(witnesses[0].text))
    if view.note.strip():
        return Diagnosis(author=Author.WORKER, cause=_bounded(view.note))
    return Diagnosis(author=None, cause="")


def settle(diagnosis: Diagnosis) -> Settlement:
    """What a task is settled with."""
    return Settlement(summary=f"given up by the supervisor; {diagnosis}", diagnosis=str(diagnosis))


def _bounded(text: str) -> str:
    """``text`` cut to its bound in bytes of UTF-8, between characters."""
    encoded = text.encode()
    return text if len(encoded) <= CAUSE_BYTES_MAX else encoded[: CAUSE_BYTES_MAX - 3].decode(errors="ignore") + "…"
