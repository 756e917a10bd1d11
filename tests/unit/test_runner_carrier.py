"""Commands that come with renewals: carried out in order, once per coming, and answered within the contract's bounds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from lane_runner_svc.loop.carrier import WAITING_MAX, Carrier
from lane_runner_svc.rpc.commands import CommandHandlers
from lanewarden import rules
from lanewarden.errors import Reason, refuse
from lanewarden.server import Call, Role
from lanewarden.v1 import lane_runner_service_pb2 as runner_pb
from lanewarden.v1 import supervisor_service_pb2 as pb


class Handlers:
    """Records what it is asked; raises what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Call]] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def Steer(self, request: Any, call: Call) -> runner_pb.SteerResponse:
        self.asked.append((request.instruction.text, request, call))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return runner_pb.SteerResponse(task={"task_id": "t1", "summary": "x" * 4096})

    async def Acknowledge(self, request: Any, call: Call) -> runner_pb.AcknowledgeResponse:
        self.asked.append(("ack", request, call))
        return runner_pb.AcknowledgeResponse()


def steer(text: str = "go") -> pb.Command:
    made = runner_pb.SteerRequest(request_id=str(uuid.uuid4()), task_id="t1", instruction={"text": text})
    return pb.Command(command_id=made.request_id, steer=made, traceparent=f"00-{'1' * 32}-{'2' * 16}-01")


class Bench:
    def __init__(self) -> None:
        self.handlers = Handlers()
        self.carrier = Carrier(cast("CommandHandlers", self.handlers))

    async def answers(self, number: int) -> list[pb.CommandAnswer]:
        """The answers, once there are so many."""
        async with asyncio.timeout(20):
            while len(self.carrier.answers()) < number:
                await asyncio.sleep(0)
        return self.carrier.answers()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    job = asyncio.ensure_future(made.carrier.run())
    yield made
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)


async def test_p19_a_command_is_carried_out_as_if_the_supervisor_had_called(bench: Bench) -> None:
    """The same method, role, origin and trace as a call has; answered without what the reports bring anyway."""
    command = steer()
    ack = runner_pb.AcknowledgeRequest(request_id=str(uuid.uuid4()), escalation_id="t1.1.1.1")
    bench.carrier.take([command, pb.Command(command_id=ack.request_id, acknowledge=ack)])
    first, second = await bench.answers(2)
    assert (first.command_id, first.WhichOneof("answer")) == (command.command_id, "steered")
    assert (second.command_id, second.WhichOneof("answer")) == (ack.request_id, "acknowledged")
    assert first.ByteSize() < 100
    (_, request, call), _ = bench.handlers.asked
    assert request == command.steer
    assert call.method == "lanewarden.v1.LaneRunnerService/Steer"
    assert call.identity.role is Role.SUPERVISOR
    assert (call.origin, call.traceparent) == ("supervisor.command.deliver", command.traceparent)


async def test_taking_never_waits_and_is_bounded(bench: Bench) -> None:
    """A renewal goes on while a command hangs; what comes again is not queued twice, what does not fit comes again."""
    bench.handlers.gate.clear()
    many = [steer(str(number)) for number in range(WAITING_MAX + 10)]
    for _ in range(3):
        bench.carrier.take(many)
    assert bench.carrier.answers() == []
    bench.handlers.gate.set()
    answers = await bench.answers(WAITING_MAX)
    assert [each.command_id for each in answers] == [each.command_id for each in many[:WAITING_MAX]]
    bench.carrier.told(answers)
    bench.carrier.take(many[WAITING_MAX:])
    await bench.answers(10)
    assert [text for text, _, _ in bench.handlers.asked] == [str(number) for number in range(WAITING_MAX + 10)]


async def test_an_answer_is_kept_until_it_was_told(bench: Bench) -> None:
    """Renewals get lost; a command that comes again before its answer was told is not carried out again."""
    command = steer()
    bench.carrier.take([command])
    answers = await bench.answers(1)
    bench.carrier.take([command])
    assert bench.carrier.answers() == answers
    bench.carrier.told(answers)
    assert bench.carrier.answers() == []
    assert len(bench.handlers.asked) == 1
    bench.carrier.take([command])
    await bench.answers(1)
    assert len(bench.handlers.asked) == 2, "its request_id gives it one effect"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refuse(Reason.HOLD_NOT_OPEN, "é" * 5_000, state="x" * 9_000), "HOLD_NOT_OPEN"),
        (ZeroDivisionError("secret"), "UNEXPECTED"),
    ],
)
async def test_a_refusal_or_a_defect_is_an_answer_that_no_supervisor_refuses(
    bench: Bench, error: Exception, reason: str
) -> None:
    """Within the contract's bounds, whatever was raised, and without the text of a foreign exception: a renewal that is
    refused would cost the lease. The next command is carried out.
    """
    bench.handlers.error = error
    bench.carrier.take([steer(), steer()])
    answers = await bench.answers(2)
    assert [each.refused.reason for each in answers] == [reason] * 2
    assert "secret" not in answers[0].refused.message
    rules.check(pb.KeepAliveRequest(runner_id="r", incarnation=str(uuid.uuid4()), generation=1, answers=answers))


async def test_what_breaks_the_rules_is_refused_and_what_is_unknown_is_left_alone(bench: Bench) -> None:
    """A request that a server would refuse is refused here; a command of a newer contract is not answered for good."""
    bad = steer()
    bad.steer.instruction.text = ""
    bench.carrier.take([pb.Command(command_id=str(uuid.uuid4())), bad])
    (answer,) = await bench.answers(1)
    assert (answer.command_id, answer.refused.reason) == (bad.command_id, "REQUEST_INVALID")
    assert bench.handlers.asked == []
