"""Follows one task to its end: output on stdout, what happens on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from lanewarden.cli import views
from lanewarden.cli.connect import OPERATOR, operator_async
from lanewarden.cli.logs import Position, write_output
from lanewarden.cli.settings import default_state_dir
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import complain, lines
from lanewarden.errors import Code, Refusal
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from lanewarden.worker_messages import enum_word

UNREACHABLE_SECONDS_MAX: Final = 60.0
RECONNECT_SECONDS: Final = 0.5
TAIL_SECONDS: Final = 5.0
"""How long the last output may take after the task has ended."""

TERMINAL: Final = frozenset(
    {
        task_pb2.TASK_STATE_SUCCEEDED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_SETTLED,
    }
)


def command(state: StateDir) -> str:
    """How to call the command line for this state directory from another terminal."""
    elsewhere = state.path != default_state_dir()
    return f"lanewarden --state-dir {shlex.quote(str(state.path))}" if elsewhere else "lanewarden"


def over(task: task_pb2.Task) -> bool:
    """Whether a task has ended, and its on_success command with it."""
    return task.state in TERMINAL and task.on_success.state != task_pb2.HOOK_STATE_PENDING


async def follow(state: StateDir, task_id: str) -> task_pb2.Task:
    """Print what the task does, and its on_success command after it; return it when it is :func:`over`.

    Raises:
        NotUp: the services could not be reached for UNREACHABLE_SECONDS_MAX; the task itself goes on.
    """
    tail = asyncio.ensure_future(_tail(state, task_id))
    try:
        ended = await _watch(state, task_id)
        await asyncio.wait({tail}, timeout=TAIL_SECONDS)
    finally:
        tail.cancel()
        await asyncio.gather(tail, return_exceptions=True)
    return ended


async def _watch(state: StateDir, task_id: str) -> task_pb2.Task:
    shown: tuple[Any, ...] = ()
    hook_shown = ""
    asked: set[str] = set()
    request = pb.OperatorServiceWatchTasksRequest(task_id=task_id)
    async with contextlib.aclosing(_again(state, lambda stub: stub.WatchTasks(request))) as responses:
        async for stub, response in responses:
            task: task_pb2.Task = response.task
            facts = (task.state, task.attempt, tuple(task.pauses))
            if facts != shown:
                shown = facts
                complain(f"lanewarden: {_happened(task)}")
            for escalation_id in task.open_holds:
                if escalation_id not in asked:
                    asked.add(escalation_id)
                    await _ask(state, stub, escalation_id)
            if task.on_success.state and (hook := views.on_success(task)) != hook_shown:
                hook_shown = hook
                complain(f"lanewarden: on_success {hook}")
            if over(task):
                return task
    raise AssertionError("the watch goes on until the task is over")


async def _tail(state: StateDir, task_id: str) -> None:
    position = Position()

    def begin(stub: Any) -> AsyncIterator[Any]:
        position.rewind()
        stream: AsyncIterator[Any] = stub.TailLog(pb.OperatorServiceTailLogRequest(task_id=task_id, follow=True))
        return stream

    async with contextlib.aclosing(_again(state, begin, once=True)) as responses:
        async for _, response in responses:
            write_output(position.fresh(response.piece))


async def _again(
    state: StateDir, begin: Callable[[Any], AsyncIterator[Any]], *, once: bool = False
) -> AsyncGenerator[tuple[Any, Any], None]:
    """The stub and each response of a stream that is begun again when it breaks; with ``once`` its end is the end."""
    lost_at: float | None = None
    while True:
        try:
            async with operator_async(state) as connection:
                stub = connection.stub(OPERATOR)
                async for response in begin(stub):
                    lost_at = None
                    yield stub, response
            if once:
                return
        except (Refusal, NotUp) as problem:
            if isinstance(problem, Refusal) and problem.reason.code is not Code.UNAVAILABLE:
                raise
        now = time.monotonic()
        lost_at = now if lost_at is None else lost_at
        if now - lost_at > UNREACHABLE_SECONDS_MAX:
            raise NotUp(f"the services could not be reached for {UNREACHABLE_SECONDS_MAX:g} s; the task goes on")
        await asyncio.sleep(RECONNECT_SECONDS)


async def _ask(state: StateDir, stub: Any, escalation_id: str) -> None:
    """Print the question, and how to answer it."""
    try:
        response = await stub.GetEscalation(pb.GetEscalationRequest(escalation_id=escalation_id))
    except Refusal:  # the runner's report of the question may come after that of the task
        complain(f"lanewarden: {escalation_id} waits for a ruling; see `{command(state)} show {escalation_id}`")
        return
    for line in lines(response.escalation.question):
        complain(f"  | {line}")
    due, owed_by = views.due(response.escalation), response.escalation.owed_by
    facts = [f"owed by {owed_by}" if owed_by else "", f"due {due}" if due else ""]
    complain(f"lanewarden: to answer, in another terminal{''.join(f', {fact}' for fact in facts if fact)}:")
    for line in views.how_to_rule(response.escalation, command(state)):
        complain(f"    {line}")


def _happened(task: task_pb2.Task) -> str:
    word = enum_word(task_pb2.TaskState, task.state)
    if task.state in TERMINAL:
        return f"{word}: {task.summary}"
    attempt = f" (attempt {task.attempt})" if task.attempt else ""
    paused = "".join(f", {cause}" for cause in views.pauses(task))
    if task.state == task_pb2.TASK_STATE_HELD:
        where = "its worker waits" if task.worker_alive else "its worker has exited; the ruling starts it again"
        return f"held{attempt}{paused}; {where}"
    mishap = f": {task.summary}" if task.summary and task.state == task_pb2.TASK_STATE_QUEUED else ""
    return f"{word}{attempt}{paused}{mishap}"
