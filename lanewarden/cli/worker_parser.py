"""The arguments of ``lanewarden worker ...``."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from lanewarden.cli import durations

RETRY_SECONDS: Final = 30.0

_EPILOG: Final = """\
A lane runner gives what it starts LANEWARDEN_SOCKET and LANEWARDEN_TOKEN (how to reach it), LANEWARDEN_TASK,
LANEWARDEN_ATTEMPT and LANEWARDEN_REASON (first, retry, ruling, input, relaunch).

exit codes of `await`:
  0 approve or choose    10 reject    11 revise    5 no ruling within --timeout
The others are those of `lanewarden --help`.

example:
  id=$(lanewarden worker escalate --option keep='leave it' --option drop='drop it' 'Drop the column?')
  lanewarden worker await "$id" > ruling && option=$(sed -n 's/^option=//p' ruling)
"""


class UsageError(Exception):
    """The arguments cannot be used; the message is one line."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """A fixed width: argparse builds a formatter per argument, and asking the terminal imports compression modules."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parser() -> argparse.ArgumentParser:
    """The parser of every verb; ``verb`` of what it returns names the verb."""
    root = _Parser(
        prog="lanewarden worker",
        description="Ask, wait, report and complete from inside a worker.",
        epilog=_EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    verbs = root.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser, prog=root.prog)
    for add in (_escalate, _await, _messages, _progress, _directive, _report, _complete, _assignment):
        add(verbs)
    return root


def _verb(verbs: Any, name: str, help_: str, *, json: bool = True) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=help_, description=help_, formatter_class=_Help, allow_abbrev=False
    )
    verb.add_argument(
        "--retry-seconds",
        type=_seconds,
        default=RETRY_SECONDS,
        metavar="S",
        help="how long to go on trying while the runner restarts (default %(default)g)",
    )
    if json:
        verb.add_argument("--json", action="store_true", help="print JSON")
    return verb


def _escalate(verbs: Any) -> None:
    verb = _verb(verbs, "escalate", "Ask a question or give notice; prints the escalation's id.")
    verb.add_argument("text", metavar="TEXT", help="the question, for a person; at most 64 KiB")
    verb.add_argument("--expects-reply", action="store_true", help="a ruling is owed: the task is held until it comes")
    verb.add_argument(
        "--option",
        action="append",
        default=[],
        type=_option,
        metavar="KEY=TEXT",
        help="an answer to choose from; repeatable; implies --expects-reply",
    )
    verb.add_argument("--key", default="", metavar="K", help="your own name for the question, shown to people")


def _await(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "await",
        "Wait for the ruling, print it as `name=value` lines (decision, option, instructions, escalation, ruling),\n"
        "and acknowledge it.",
    )
    verb.add_argument(
        "escalation", nargs="?", metavar="ESCALATION", help="default: the oldest one whose ruling is not acknowledged"
    )
    verb.add_argument("--timeout", type=_seconds, metavar="S", help="give up after S seconds (default: never)")


def _messages(verbs: Any) -> None:
    verb = _verb(verbs, "messages", "Print and acknowledge the messages of the task's inbox, oldest first.")
    verb.add_argument("--follow", action="store_true", help="then wait for more, until interrupted")


def _progress(verbs: Any) -> None:
    verb = _verb(verbs, "progress", "Report progress; prints the stored sequence.")
    verb.add_argument(
        "sequence", nargs="?", type=_sequence, metavar="N", help="the new sequence (default: one more than before)"
    )
    verb.add_argument("--note", default="", metavar="TEXT", help="what was done; at most 4 KiB")
    verb.add_argument(
        "--retry-at",
        type=_instant,
        metavar="TIME|DURATION",
        help="a limit of use is met: after `exit 75` do not start again before, such as 2h or 2026-12-01T09:00:00Z",
    )


def _directive(verbs: Any) -> None:
    verb = _verb(
        verbs,
        "directive",
        "Say how full the context is, and print what to do before the next turn as `name=value` lines (directive, id,\n"
        "checkpoint, cause, reductions). The directive is continue, checkpoint, rebuild, compact or wrap_up.",
    )
    verb.add_argument("--tokens", type=_tokens, required=True, metavar="N", help="tokens in use")
    verb.add_argument("--window", type=_tokens, default=0, metavar="W", help="its size (default: what the task says)")
    verb.add_argument("--into", type=Path, metavar="FILE", help="where to put the checkpoint of a rebuild")
    verb.add_argument("--measurement", default="", metavar="ID", help="one never counts twice (default: a new one)")
    verb.add_argument("--turn", type=_tokens, default=0, metavar="N", help="when it was taken (default: one more)")


def _report(verbs: Any) -> None:
    verb = _verb(verbs, "report", "Say how a directive went; the first report of it stands.", json=False)
    verb.add_argument("directive", metavar="ID", help="the id that `directive` printed")
    verb.add_argument("outcome", choices=("done", "failed"), help="a context that could not be replaced has failed")
    verb.add_argument("--checkpoint", type=Path, metavar="FILE", help="what was written; at most 1 MiB")
    verb.add_argument(
        "--failure",
        choices=("transient", "auth", "bad_request", "unknown"),
        default="unknown",
        help="how a checkpoint failed; only a transient failure is tried again (default %(default)s)",
    )
    verb.add_argument("--inserted-tokens", type=_tokens, default=0, metavar="N", help="what a rebuild has put in")
    verb.add_argument("--detail", default="", metavar="TEXT", help="for people; at most 4 KiB")


def _complete(verbs: Any) -> None:
    verb = _verb(verbs, "complete", "State the task's outcome; it is final when the worker has exited.", json=False)
    verb.add_argument("--failed", action="store_true", help="the task cannot be done (default: it is done)")
    verb.add_argument("--summary", default="", metavar="TEXT", help="what was done, or why not; at most 4 KiB")


def _assignment(verbs: Any) -> None:
    _verb(verbs, "assignment", "Print the task, why this attempt was started, and its open holds.")


def _option(text: str) -> tuple[str, str]:
    key, equals, meaning = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=TEXT")
    return key, meaning


def _instant(text: str) -> datetime:
    with suppress(ValueError):
        return datetime.now(UTC) + durations.parse(text)
    with suppress(ValueError):
        instant = datetime.fromisoformat(text)
        if instant.tzinfo is not None:
            return instant
    wanted = "a duration such as 2h, or a time with its zone such as 2026-12-01T09:00:00Z"
    raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")


def _bounded(kind: Callable[[str], float], low: float, high: float, wanted: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return convert


_seconds = _bounded(float, 0, 10**9, "a number of seconds")
_tokens = _bounded(int, 0, 10**9, "a whole number up to 1000000000")
_sequence = _bounded(int, 1, 2**63 - 1, "a whole number from 1")
