"""Checks a task spec at the door, against the machine it will run on."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final

from lane_runner_svc.core.task import Kind
from lane_runner_svc.core.timers import REMINDER_MS_DEFAULT, REMINDER_MS_MAX, Approver, Patience
from lane_runner_svc.process.model import LOG_BYTES_MIN
from lane_runner_svc.rpc import contexts
from lane_runner_svc.work.tasks import Submission
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.v1 import task_pb2

STOP_GRACE_MS_DEFAULT: Final = 10_000
STOP_GRACE_MS_MAX: Final = 600_000
PREMATURE_EXITS_DEFAULT: Final = 3
LAUNCH_FAILURES_DEFAULT: Final = 5
HOLD_DEADLINE_MS_MIN: Final = 60_000
HOLD_DEADLINE_MS_MAX: Final = 366 * 24 * 3600 * 1000
RUNNER_LOSS_MS_MIN: Final = 1_000
RUNNER_LOSS_MS_MAX: Final = HOLD_DEADLINE_MS_MAX
HEARTBEAT_MS_MAX: Final = 366 * 24 * 3600 * 1000
DEEP_MAX: Final = 2
"""Each `**` of a pattern multiplies what a look at files has to go through."""
LOG_BYTES_DEFAULT: Final = 64 << 20
RESERVED_PREFIX: Final = "LANEWARDEN_"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")


def check(
    spec: task_pb2.TaskSpec,
    *,
    lanes: Sequence[str],
    default_lane: str,
    environment: Mapping[str, str],
    approvers: Mapping[str, tuple[Approver, ...]],
) -> Submission:
    """The submission, with every default filled in.

    ``environment`` is what the runner gives its workers; ``approvers`` are those of each lane, for tasks that name
    none. Field rules have been checked before.

    Raises:
        Refusal: REQUEST_INVALID with every violation, LANE_UNKNOWN.
    """
    if spec.lane and spec.lane not in lanes:
        raise refuse(Reason.LANE_UNKNOWN, f"no lane {spec.lane!r} here; there are: {', '.join(lanes)}", lane=spec.lane)
    filled = task_pb2.TaskSpec()
    filled.CopyFrom(spec)
    filled.kind = spec.kind or task_pb2.TASK_KIND_ONE_SHOT
    filled.lane = spec.lane or default_lane
    filled.name = spec.name or _UNFIT.sub("-", Path(spec.argv[0]).name).strip("-._")[:63] or "task"
    filled.cwd = spec.cwd or str(Path.cwd())
    filled.log_bytes_max = spec.log_bytes_max or LOG_BYTES_DEFAULT
    grace_ms = spec.stop_grace.ToMilliseconds() if spec.HasField("stop_grace") else STOP_GRACE_MS_DEFAULT
    filled.stop_grace.FromMilliseconds(grace_ms)
    filled.on_supervisor_loss = spec.on_supervisor_loss or task_pb2.SUPERVISOR_LOSS_CONTINUE
    problems = [
        *_environment_problems(spec),
        *_place_problems(filled, {**environment, **spec.env}),
        *_patience_problems(filled),
        *_runner_loss_problems(spec),
        *_heartbeat_problems(filled),
        *_progress_problems(filled),
        *contexts.problems(filled),
        *([] if 0 <= grace_ms <= STOP_GRACE_MS_MAX else [("spec.stop_grace", "must be from 0 to 10 minutes")]),
        *(
            []
            if filled.log_bytes_max >= LOG_BYTES_MIN
            else [("spec.log_bytes_max", f"must be at least {LOG_BYTES_MIN}")]
        ),
        *([] if len(set(spec.gates)) == len(spec.gates) else [("spec.gates", "each gate may be named once")]),
    ]
    if problems:
        raise invalid(*problems)
    premature_exits_max = PREMATURE_EXITS_DEFAULT
    if spec.HasField("premature_exits_max"):
        premature_exits_max = spec.premature_exits_max
    launch_failures_max = LAUNCH_FAILURES_DEFAULT
    if spec.HasField("launch_failures_max"):
        launch_failures_max = spec.launch_failures_max
    return Submission(
        name=filled.name,
        lane=filled.lane,
        gates=tuple(filled.gates),
        spec=filled.SerializeToString(deterministic=True),
        stop_grace_ms=grace_ms,
        premature_exits_max=premature_exits_max,
        launch_failures_max=launch_failures_max,
        patience=_patience(filled, approvers.get(filled.lane, ())),
        on_success=tuple(filled.on_success),
        hold_on_supervisor_loss=filled.on_supervisor_loss == task_pb2.SUPERVISOR_LOSS_HOLD,
        kind=Kind[task_pb2.TaskKind.Name(filled.kind).removeprefix("TASK_KIND_")],
        parent_task_id=filled.parent_task_id,
    )


def _patience(spec: task_pb2.TaskSpec, of_lane: tuple[Approver, ...]) -> Patience:
    named = tuple(Approver(identity=each.identity, after_ms=each.after.ToMilliseconds()) for each in spec.approvers)
    return Patience(
        reminder_ms=spec.reminder.ToMilliseconds() if spec.HasField("reminder") else REMINDER_MS_DEFAULT,
        deadline_ms=spec.hold_deadline.ToMilliseconds() if spec.HasField("hold_deadline") else None,
        approvers=named or of_lane,
    )


def deadline_problems(deadline_ms: int, field: str) -> list[tuple[str, str]]:
    """What is wrong with a deadline of this length."""
    if HOLD_DEADLINE_MS_MIN <= deadline_ms <= HOLD_DEADLINE_MS_MAX:
        return []
    return [(field, "must be from 1 minute to 1 year")]


def _patience_problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    problems = []
    if spec.HasField("hold_deadline"):
        problems += deadline_problems(spec.hold_deadline.ToMilliseconds(), "spec.hold_deadline")
    if spec.HasField("reminder") and not 1_000 <= spec.reminder.ToMilliseconds() <= REMINDER_MS_MAX:
        problems.append(("spec.reminder", "must be from 1 second to 4 hours"))
    delays = [each.after.ToMilliseconds() for each in spec.approvers]
    if delays != sorted(delays) or any(not 0 <= delay <= HOLD_DEADLINE_MS_MAX for delay in delays):
        problems.append(("spec.approvers", "delays must not be negative, and each at least that of the one before"))
    return problems


def _runner_loss_problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    stop_after_ms = spec.runner_loss_stop_after.ToMilliseconds()
    if not spec.HasField("runner_loss_stop_after") or RUNNER_LOSS_MS_MIN <= stop_after_ms <= RUNNER_LOSS_MS_MAX:
        return []
    return [("spec.runner_loss_stop_after", "must be from 1 second to 1 year")]


def _heartbeat_problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    if not spec.HasField("heartbeat") or 1_000 <= spec.heartbeat.ToMilliseconds() <= HEARTBEAT_MS_MAX:
        return []
    return [("spec.heartbeat", "must be from 1 second to 1 year")]


def _progress_problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    """A source that nobody would look at would have the task called stale."""
    source = spec.progress_from
    match source.WhichOneof("source") if spec.HasField("progress_from") else "none":
        case None:
            return [("spec.progress_from", "must name a source: output_lines or files")]
        case "output_lines" if not source.output_lines:
            return [("spec.progress_from.output_lines", "must be true, or left out")]
        case "files" if not _is_pattern(source.files):
            problem = f"must be a pattern relative to cwd, with `**` between slashes, {DEEP_MAX} times at most"
            return [("spec.progress_from.files", problem)]
    return []


def _is_pattern(text: str) -> bool:
    """Whether it can be looked for below a directory, with no more `**` than a look is bounded for."""
    path = PurePath(text)
    deep = path.parts.count("**")
    return bool(path.parts) and not path.is_absolute() and "\0" not in text and text.count("**") == deep <= DEEP_MAX


def _environment_problems(spec: task_pb2.TaskSpec) -> list[tuple[str, str]]:
    problems = []
    for name in spec.env:
        if not name or "=" in name:
            problems.append(("spec.env", f"{name!r} cannot be the name of a variable"))
        elif name.startswith(RESERVED_PREFIX):
            problems.append(("spec.env", f"{name}: names that begin with {RESERVED_PREFIX} are the runner's own"))
    return problems


def _place_problems(spec: task_pb2.TaskSpec, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """A directory or program that is not there is said now, not after five launches."""
    cwd = Path(spec.cwd)
    if not cwd.is_absolute():
        return [("spec.cwd", f"{spec.cwd!r} is not absolute")]
    if not _is(cwd.is_dir):
        return [("spec.cwd", f"there is no directory {spec.cwd!r}")]
    problems = _program_problems(spec.argv[0], "spec.argv[0]", cwd, environment)
    if spec.on_success:
        problems += _program_problems(spec.on_success[0], "spec.on_success[0]", cwd, environment)
    if spec.context.writer:
        problems += _program_problems(spec.context.writer[0], "spec.context.writer[0]", cwd, environment)
    return problems


def _program_problems(program: str, field: str, cwd: Path, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    if not program:
        return [(field, "the program must not be empty")]
    if "/" in program:
        path = cwd / program
        if not _is(path.is_file):
            return [(field, f"there is no program {program!r} (looked at from {cwd})")]
        if not os.access(path, os.X_OK):
            return [(field, f"{program!r} is not executable; `chmod +x` it or name its interpreter")]
        return []
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        return [(field, f"there is no program {program!r} in PATH")]
    return []


def _is(look: Callable[[], bool]) -> bool:
    """A path that cannot even be looked at (too long a name, no permission on the way) is not there for us."""
    try:
        return look()
    except OSError:
        return False
