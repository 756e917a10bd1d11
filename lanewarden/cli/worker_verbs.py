"""``lanewarden worker ...``: the verbs a worker uses, so that a shell script can be one.

Built on argparse, because a verb may run once a second and the rest of the command line takes longer to import than the
call takes.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from lanewarden.cli import worker_parser
from lanewarden.cli.exits import Exit, of_refusal
from lanewarden.cli.terminal import complain, one_line, write_json

_DECIDED: Final = {"reject": Exit.REJECTED, "revise": Exit.REVISE}


def main(argv: Sequence[str]) -> int:
    """Run one verb and return its exit code."""
    try:
        given = worker_parser.parser().parse_args(list(argv))
    except worker_parser.UsageError as error:
        complain(f"lanewarden worker: {error}")
        return Exit.USAGE
    except SystemExit as help_shown:
        return int(help_shown.code or 0)
    return _run(given)


def _run(given: argparse.Namespace) -> int:
    # Here and not above: help and mistakes need no gRPC. Collections while modules are imported find nothing, and take a
    # tenth of a verb's time.
    gc.disable()
    from lanewarden.errors import Refusal
    from lanewarden.worker import NotAWorker, Worker

    gc.freeze()
    gc.enable()
    verb: Callable[[Worker, argparse.Namespace], int] = _VERBS[given.verb]
    try:
        with Worker.from_environment(retry_seconds=given.retry_seconds) as worker:
            return verb(worker, given)
    except NotAWorker as problem:
        complain(f"lanewarden worker: {problem}")
        return Exit.USAGE
    except Refusal as refusal:
        complain(str(refusal))
        return of_refusal(refusal)
    except TimeoutError as problem:
        complain(f"lanewarden worker: {problem}")
        return Exit.HELD
    except BrokenPipeError:
        complain("lanewarden worker: whoever read the output has gone; what it did not get is not acknowledged")
        return Exit.INTERRUPTED
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except UnicodeEncodeError:
        complain("lanewarden worker: an argument is not valid UTF-8")
        return Exit.USAGE
    except UnicodeDecodeError:
        complain(f"lanewarden worker: {given.checkpoint} is not valid UTF-8")
        return Exit.USAGE
    except OSError as problem:
        complain(f"lanewarden worker: {problem.filename}: {problem.strerror}")
        return Exit.USAGE


def _escalate(worker: Any, given: argparse.Namespace) -> int:
    options = dict(given.option)
    asked = worker.escalate(
        given.text, options=options, expects_reply=given.expects_reply or bool(options), key=given.key
    )
    _say({"escalation_id": asked.escalation_id}, given.json, asked.escalation_id)
    return Exit.DONE


def _await(worker: Any, given: argparse.Namespace) -> int:
    ruling = worker.await_ruling(given.escalation, timeout_seconds=given.timeout)
    if given.json:
        write_json(_fields(ruling))
    else:
        for key, value in (
            ("decision", ruling.decision),
            ("option", ruling.option_key),
            ("instructions", ruling.instructions),
            ("escalation", ruling.escalation_id),
            ("ruling", ruling.ruling_id),
        ):
            print(f"{key}={one_line(value)}")
    # Acknowledged only once whoever reads the ruling can have it: a verb that dies before is asked again.
    sys.stdout.flush()
    worker.acknowledge(ruling)
    return _DECIDED.get(ruling.decision, Exit.DONE)


def _messages(worker: Any, given: argparse.Namespace) -> int:
    for message in worker.messages(follow=given.follow):
        if given.json:
            write_json(_fields(message))
        else:
            said = message.text if message.ruling is None else _ruling_line(message.ruling)
            print(f"{message.kind} from {one_line(message.sent_by)}: {one_line(said)}")
        sys.stdout.flush()
        worker.acknowledge(message)
    return Exit.DONE


def _progress(worker: Any, given: argparse.Namespace) -> int:
    sequence = worker.progress(given.sequence, note=given.note, retry_at=given.retry_at)
    _say({"sequence": sequence}, given.json, str(sequence))
    return Exit.DONE


def _directive(worker: Any, given: argparse.Namespace) -> int:
    found = worker.next_directive(given.tokens, given.window, measurement_id=given.measurement, turn=given.turn)
    if given.json:
        write_json(_fields(found))
    else:
        print(f"directive={found.kind}\nid={found.directive_id}\ncheckpoint={found.checkpoint_id}")
        print(f"cause={one_line(found.cause)}\nreductions={found.reductions} of {found.reductions_max}")
        for signal in found.signals:
            print(f"signal={signal}")
    if given.into and found.kind == "rebuild":
        # Said before: whoever cannot write the file has the id, and can report that.
        sys.stdout.flush()
        given.into.write_text(found.content, encoding="utf-8")
    return Exit.DONE


def _report(worker: Any, given: argparse.Namespace) -> int:
    content = given.checkpoint.read_text(encoding="utf-8") if given.checkpoint else ""
    worker.report_directive(
        given.directive,
        done=given.outcome == "done",
        content=content,
        failure=given.failure,
        inserted_tokens=given.inserted_tokens,
        detail=given.detail,
    )
    return Exit.DONE


def _complete(worker: Any, given: argparse.Namespace) -> int:
    worker.complete(given.summary, failed=given.failed)
    return Exit.DONE


def _assignment(worker: Any, given: argparse.Namespace) -> int:
    found = worker.assignment()
    if given.json:
        write_json(_fields(found))
        return Exit.DONE
    progress = "unknown" if found.progress is None else found.progress
    print(f"task={found.task_id}\nname={found.name}\nlane={found.lane}")
    print(f"epoch={found.epoch}\nattempt={found.attempt}\nreason={found.reason}\nprogress={progress}")
    for hold in found.holds:
        print(f"hold={hold.escalation_id}")
    return Exit.DONE


_VERBS: Final[dict[str, Callable[[Any, argparse.Namespace], int]]] = {
    "escalate": _escalate,
    "await": _await,
    "messages": _messages,
    "progress": _progress,
    "directive": _directive,
    "report": _report,
    "complete": _complete,
    "assignment": _assignment,
}


def _say(fields: dict[str, Any], as_json: bool, line: str) -> None:
    if as_json:
        write_json(fields)
    else:
        print(line)


def _ruling_line(ruling: Any) -> str:
    option = f" {ruling.option_key}" if ruling.option_key else ""
    return f"{ruling.decision}{option} on {ruling.escalation_id}: {ruling.instructions}"


def _fields(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)
