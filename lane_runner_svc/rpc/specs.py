"""Checks a task spec at the door, against the machine it will run on."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lane_runner_svc.process.model import LOG_BYTES_MIN
from lane_runner_svc.work.tasks import Submission
from lanewarden.errors import Reason, invalid, refuse
from lanewarden.v1 import task_pb2

STOP_GRACE_MS_DEFAULT: Final = 10_000
STOP_GRACE_MS_MAX: Final = 600_000
PREMATURE_EXITS_DEFAULT: Final = 3
LAUNCH_FAILURES_DEFAULT: Final = 5
LOG_BYTES_DEFAULT: Final = 64 << 20
RESERVED_PREFIX: Final = "LANEWARDEN_"
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]+")


def check(
    spec: task_pb2.TaskSpec, *, lanes: Sequence[str], default_lane: str, environment: Mapping[str, str]
) -> Submission:
    """The submission, with every default filled in.

    ``environment`` is what the runner gives its workers. Field rules have been checked before.

    Raises:
        Refusal: REQUEST_INVALID with every violation, LANE_UNKNOWN, NOT_BUILT for a session.
    """
    if spec.kind == task_pb2.TASK_KIND_SESSION:
        raise refuse(Reason.NOT_BUILT, "sessions are not built yet; submit a ONE_SHOT task", field="spec.kind")
    if spec.lane and spec.lane not in lanes:
        raise refuse(Reason.LANE_UNKNOWN, f"no lane {spec.lane!r} here; there are: {', '.join(lanes)}", lane=spec.lane)
    filled = task_pb2.TaskSpec()
    filled.CopyFrom(spec)
    filled.kind = task_pb2.TASK_KIND_ONE_SHOT
    filled.lane = spec.lane or default_lane
    filled.name = spec.name or _UNFIT.sub("-", Path(spec.argv[0]).name).strip("-._")[:63] or "task"
    filled.cwd = spec.cwd or str(Path.cwd())
    filled.log_bytes_max = spec.log_bytes_max or LOG_BYTES_DEFAULT
    grace_ms = spec.stop_grace.ToMilliseconds() if spec.HasField("stop_grace") else STOP_GRACE_MS_DEFAULT
    filled.stop_grace.FromMilliseconds(grace_ms)
    problems = [
        *_environment_problems(spec),
        *_place_problems(filled, {**environment, **spec.env}),
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
    )


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
    program = spec.argv[0]
    if not program:
        return [("spec.argv[0]", "the program must not be empty")]
    if "/" in program:
        path = cwd / program
        if not _is(path.is_file):
            return [("spec.argv[0]", f"there is no program {program!r} (looked at from {spec.cwd})")]
        if not os.access(path, os.X_OK):
            return [("spec.argv[0]", f"{program!r} is not executable; `chmod +x` it or name its interpreter")]
        return []
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        return [("spec.argv[0]", f"there is no program {program!r} in PATH")]
    return []


def _is(look: Callable[[], bool]) -> bool:
    """A path that cannot even be looked at (too long a name, no permission on the way) is not there for us."""
    try:
        return look()
    except OSError:
        return False
