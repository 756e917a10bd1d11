"""Requests to a lane runner: one effect each, however often they come; their limits; the pages of listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lane_runner_svc import emitters
from lane_runner_svc.core.states import State
from lane_runner_svc.rpc import specs
from lane_runner_svc.work import inbox
from lanewarden import wire
from lanewarden.auth import Role
from lanewarden.errors import Reason
from lanewarden.v1 import lane_runner_service_pb2 as pb
from lanewarden.v1 import task_pb2
from lanewarden.v1 import worker_service_pb2 as wpb
from tests import runner_checks as checks
from tests.runner_checks import changes_nothing, refused
from tests.runner_kit import KILLED, LANES, RunnerKit, make_runner

REQUEST_ID = "00000000-0000-4000-8000-000000000001"
UNKNOWN = "t000000000"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[RunnerKit]:
    """A runner; when it is closed, every row that it wrote had an author (I11)."""
    made = make_runner(tmp_path)
    yield made
    made.close()


Prepare = Callable[[RunnerKit], tuple[Callable[[Any], Any], Any, Any]]
"""Gives a way to send, a request, and another one that differs in content only."""


def _submit(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    spec = {"argv": ["true"], "cwd": str(kit.directory)}
    first, other = (pb.SubmitTaskRequest(request_id=REQUEST_ID, spec={**spec, "name": name}) for name in ("x", "y"))
    return lambda request: kit.ask("SubmitTask", request), first, other


def _of_task(method: str, request: type, **differs: Any) -> Prepare:
    def prepare(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
        task_id = kit.submit(gates=["review"]).task_id
        other_id = kit.submit(gates=["review"]).task_id
        fixed = {"gate": "review", "decision": "GATE_DECISION_APPROVED"} if method == "RecordGate" else {}
        text = {"text": "x"} if method == "SendInput" else {}
        first = request(request_id=REQUEST_ID, task_id=task_id, **fixed, **text)
        values = {"task_id": task_id, **fixed, **text, **(differs or {"task_id": other_id})}
        return lambda each: kit.ask(method, each), first, request(request_id=REQUEST_ID, **values)

    return prepare


def _ack(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    escalation_id = kit.escalate(kit.running())
    first, other = (
        pb.AcknowledgeRequest(request_id=REQUEST_ID, escalation_id=escalation_id, note=note) for note in ("x", "y")
    )
    return lambda request: kit.ask("Acknowledge", request), first, other


def _rule(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    escalation_id = kit.escalate(kit.running())
    first, other = (
        pb.SteerRequest(
            request_id=REQUEST_ID,
            ruling={"escalation_id": escalation_id, "decision": "DECISION_APPROVE", "instructions": text},
        )
        for text in ("x", "y")
    )
    return lambda request: kit.ask("Steer", request), first, other


def _instruct(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    ref = kit.running()
    first, other = (
        pb.SteerRequest(request_id=REQUEST_ID, task_id=ref.task_id, instruction={"text": text}) for text in ("x", "y")
    )
    return lambda request: kit.ask("Steer", request), first, other


def _worker(method: str, first: dict[str, Any], other: dict[str, Any], request: type) -> Prepare:
    def prepare(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
        ref = kit.running()
        made = [request(request_id=REQUEST_ID, **values) for values in (first, other)]
        return lambda each: kit.say(ref, method, each), made[0], made[1]

    return prepare


def _take(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    ref = kit.running()
    first, other = (
        wpb.AcknowledgeMessageRequest(
            request_id=REQUEST_ID,
            message_id=kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text=text)).message.message_id,
        )
        for text in ("x", "y")
    )
    return lambda request: kit.say(ref, "AcknowledgeMessage", request), first, other


def _reopen(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    first, other = (
        pb.ReopenTaskRequest(request_id=REQUEST_ID, task_id=kit.cancel(kit.submit().task_id).task_id) for _ in range(2)
    )
    return lambda request: kit.ask("ReopenTask", request), first, other


def _extend(kit: RunnerKit) -> tuple[Callable[[Any], Any], Any, Any]:
    escalation_id = kit.escalate(kit.running())
    first, other = (
        pb.ExtendHoldRequest(request_id=REQUEST_ID, escalation_id=escalation_id, deadline={"seconds": seconds})
        for seconds in (60, 61)
    )
    return lambda request: kit.ask("ExtendHold", request), first, other


COMMANDS: dict[str, Prepare] = {
    "SubmitTask": _submit,
    "SendInput": _of_task("SendInput", pb.SendInputRequest, text="y"),
    "Acknowledge": _ack,
    "Steer with a ruling": _rule,
    "Steer with an instruction": _instruct,
    "CancelTask": _of_task("CancelTask", pb.CancelTaskRequest, cause="y"),
    "PauseTask": _of_task("PauseTask", pb.PauseTaskRequest),
    "ResumeTask": _of_task("ResumeTask", pb.ResumeTaskRequest),
    "RetryTask": _of_task("RetryTask", pb.RetryTaskRequest),
    "ReopenTask": _reopen,
    "TakeOver": _of_task("TakeOver", pb.LaneRunnerServiceTakeOverRequest, cause="y"),
    "ExtendHold": _extend,
    "RecordGate": _of_task("RecordGate", pb.RecordGateRequest, decision="GATE_DECISION_REVISE"),
    "Escalate": _worker("Escalate", {"question": "x?"}, {"question": "y?"}, wpb.WorkerServiceEscalateRequest),
    "Escalate with a hold": _worker(
        "Escalate",
        {"question": "x?", "expects_reply": True},
        {"question": "y?", "expects_reply": True},
        wpb.WorkerServiceEscalateRequest,
    ),
    "AcknowledgeMessage": _take,
    "ReportProgress": _worker("ReportProgress", {}, {"sequence": 9}, wpb.ReportProgressRequest),
    "Complete": _worker("Complete", {"summary": "x"}, {"summary": "y"}, wpb.CompleteRequest),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_p10_a_repeated_request_gets_the_first_answer_and_has_no_second_effect(kit: RunnerKit, command: str) -> None:
    """Also after a restart, and also when the world has moved on; other content under the same id is refused."""
    send, request, other = COMMANDS[command](kit)
    first = send(request)
    before = kit.dump()
    kit.clock.advance(60)
    assert send(request) == first
    kit.restart()
    assert send(request) == first
    assert kit.dump() == before
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: send(other))


def test_the_first_answer_outlives_the_task(kit: RunnerKit) -> None:
    """A submit that is repeated when its task has ended is answered as the first time; so is a worker's call."""
    request = pb.SubmitTaskRequest(request_id=REQUEST_ID, spec={"argv": ["true"], "cwd": str(kit.directory)})
    first = kit.ask("SubmitTask", request)
    ref = kit.start(first.task.spec.lane)
    complete = wpb.CompleteRequest(request_id=kit.fresh_id(), summary="done")
    answer = kit.say(ref, "Complete", complete)
    kit.exited(ref)
    assert kit.ask("SubmitTask", request) == first
    assert kit.say(ref, "Complete", complete) == answer
    assert kit.task(ref.task_id).state is State.SUCCEEDED


def test_a_request_id_belongs_to_one_caller_and_one_method(kit: RunnerKit) -> None:
    """Another worker, the next attempt, another role or another method with the same id is refused, never answered."""
    first, second = kit.running(lane="a"), kit.running(lane="b")
    request = wpb.WorkerServiceEscalateRequest(request_id=REQUEST_ID, question="may I?", expects_reply=True)
    kit.say(first, "Escalate", request)
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: kit.say(second, "Escalate", request))
    kit.rule(kit.say(first, "Escalate", request).escalation.escalation_id)
    kit.exited(first, KILLED)
    again = kit.start("a")
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: kit.say(again, "Escalate", request))
    progress = wpb.ReportProgressRequest(request_id=REQUEST_ID)
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: kit.say(again, "ReportProgress", progress))
    pause = pb.PauseTaskRequest(request_id=kit.fresh_id(), task_id=first.task_id)
    kit.ask("PauseTask", pause)
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: kit.ask("PauseTask", pause, role=Role.SUPERVISOR))
    resume = pb.ResumeTaskRequest(request_id=pause.request_id, task_id=first.task_id)
    changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda: kit.ask("ResumeTask", resume))


def test_a_message_id_is_never_given_to_two_messages(kit: RunnerKit) -> None:
    """Even when the request log has forgotten the first: a ruling and an input under an old id are refused."""
    ref = kit.running()
    escalation_id = kit.escalate(ref)
    old = kit.rule(kit.escalate(ref)).message.message_id
    forget = lambda uow: uow.execute("DELETE FROM request_log")  # noqa: E731
    kit.runner.store.write_now(forget, emitter=emitters.PRUNE)
    ruling = {"escalation_id": escalation_id, "decision": "DECISION_APPROVE", "instructions": "go on"}
    for method, request in (
        ("Steer", pb.SteerRequest(request_id=old, ruling=ruling)),
        ("SendInput", pb.SendInputRequest(request_id=old, task_id=ref.task_id, text="x")),
    ):
        changes_nothing(kit, Reason.REQUEST_ID_REUSED, lambda method=method, request=request: kit.ask(method, request))


@pytest.mark.parametrize(
    ("method", "request_type", "more"),
    [
        ("GetTask", pb.GetTaskRequest, {}),
        ("CheckCompletion", pb.CheckCompletionRequest, {}),
        ("SendInput", pb.SendInputRequest, {"text": "x"}),
        ("Steer", pb.SteerRequest, {"instruction": {"text": "x"}}),
        ("CancelTask", pb.CancelTaskRequest, {}),
        ("PauseTask", pb.PauseTaskRequest, {}),
        ("ResumeTask", pb.ResumeTaskRequest, {}),
        ("RecordGate", pb.RecordGateRequest, {"gate": "review", "decision": "GATE_DECISION_APPROVED"}),
    ],
)
def test_an_unknown_task_is_unknown_everywhere(
    kit: RunnerKit, method: str, request_type: type, more: dict[str, Any]
) -> None:
    """TASK_UNKNOWN, and nothing is stored, not even the request: it may be sent again."""
    for _ in range(2):
        changes_nothing(kit, Reason.TASK_UNKNOWN, lambda: kit.ask(method, request_type(task_id=UNKNOWN, **more)))


def test_unknown_escalations_messages_and_lanes(kit: RunnerKit) -> None:
    """Each has a reason of its own."""
    ref, other = kit.running(lane="a"), kit.running(lane="b")
    message = kit.ask("SendInput", pb.SendInputRequest(task_id=other.task_id, text="x")).message
    ack = pb.AcknowledgeRequest(escalation_id=f"{ref.task_id}.1.1.9")
    changes_nothing(kit, Reason.ESCALATION_UNKNOWN, lambda: kit.ask("Acknowledge", ack))
    changes_nothing(kit, Reason.MESSAGE_UNKNOWN, lambda: kit.take(ref, kit.fresh_id()))
    changes_nothing(kit, Reason.MESSAGE_UNKNOWN, lambda: kit.take(ref, message.message_id))
    changes_nothing(kit, Reason.LANE_UNKNOWN, lambda: kit.submit(lane="nowhere"))


def test_a_task_that_has_ended_takes_nothing(kit: RunnerKit) -> None:
    """TASK_TERMINAL with its state for every command; only a cancel of a canceled one is answered."""
    ref = kit.running()
    kit.exited(ref)
    for method, request in (
        ("SendInput", pb.SendInputRequest(task_id=ref.task_id, text="x")),
        ("Steer", pb.SteerRequest(task_id=ref.task_id, instruction={"text": "x"})),
        ("CancelTask", pb.CancelTaskRequest(task_id=ref.task_id)),
        ("PauseTask", pb.PauseTaskRequest(task_id=ref.task_id)),
        ("ResumeTask", pb.ResumeTaskRequest(task_id=ref.task_id)),
    ):
        refusal = changes_nothing(
            kit, Reason.TASK_TERMINAL, lambda method=method, request=request: kit.ask(method, request)
        )
        assert refusal.metadata["state"] == "SUCCEEDED"


def test_the_limit_of_waiting_messages_is_for_everything_but_rulings(kit: RunnerKit) -> None:
    """A full inbox refuses inputs and takes the ruling: otherwise its task could never go on."""
    checks.check_a_full_inbox_takes_a_ruling(kit)


def test_the_limit_of_holds(kit: RunnerKit) -> None:
    """A hundred holds of one task, then LIMIT_REACHED; a notice is still taken, and a closed hold makes room."""
    ref = kit.running()
    first = kit.escalate(ref)
    for _ in range(inbox.HOLDS_PER_TASK_MAX - 1):
        kit.escalate(ref)
    changes_nothing(kit, Reason.LIMIT_REACHED, lambda: kit.escalate(ref))
    kit.escalate(ref, expects_reply=False)
    kit.take(ref, kit.rule(first).message.message_id)
    kit.escalate(ref)


def test_questions_that_cannot_be_answered_are_refused(kit: RunnerKit) -> None:
    """Options need distinct keys, and a notice has none."""
    ref = kit.running()
    twice = [{"key": "red"}, {"key": "red"}]
    changes_nothing(kit, Reason.REQUEST_INVALID, lambda: kit.escalate(ref, options=twice))
    changes_nothing(
        kit, Reason.REQUEST_INVALID, lambda: kit.escalate(ref, options=[{"key": "red"}], expects_reply=False)
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"cwd": "relative"}, "spec.cwd"),
        ({"cwd": "/nowhere/at/all"}, "spec.cwd"),
        ({"cwd": f"/{'x' * 300}"}, "spec.cwd"),
        ({"argv": ["no-such-program-anywhere"]}, "spec.argv[0]"),
        ({"argv": ["./missing"]}, "spec.argv[0]"),
        ({"argv": [f"./{'x' * 300}"]}, "spec.argv[0]"),
        ({"argv": ["x" * 5_000]}, "spec.argv[0]"),
        ({"env": {"LANEWARDEN_TOKEN": "x"}}, "spec.env"),
        ({"env": {"A=B": "x"}}, "spec.env"),
        ({"gates": ["review", "review"]}, "spec.gates"),
        ({"stop_grace": {"seconds": 601}}, "spec.stop_grace"),
        ({"heartbeat": {"nanos": 1}}, "spec.heartbeat"),
        ({"heartbeat": {"seconds": 400 * 86_400}}, "spec.heartbeat"),
        ({"stop_grace": {"seconds": -1}}, "spec.stop_grace"),
        ({"stop_grace": {"seconds": 315_576_000_000}}, "spec.stop_grace"),
        ({"runner_loss_stop_after": {"nanos": 999_999_999}}, "spec.runner_loss_stop_after"),
        ({"progress_from": {}}, "spec.progress_from"),
        ({"progress_from": {"output_lines": False}}, "spec.progress_from.output_lines"),
        ({"progress_from": {"files": ""}}, "spec.progress_from.files"),
        ({"progress_from": {"files": "/etc/*"}}, "spec.progress_from.files"),
        ({"progress_from": {"files": "."}}, "spec.progress_from.files"),
        ({"progress_from": {"files": "a**"}}, "spec.progress_from.files"),
        ({"progress_from": {"files": "**/a/**/b/**"}}, "spec.progress_from.files"),
        ({"runner_loss_stop_after": {"seconds": -1}}, "spec.runner_loss_stop_after"),
        ({"runner_loss_stop_after": {"seconds": 366 * 86_400 + 1}}, "spec.runner_loss_stop_after"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_a_spec_that_cannot_run_is_refused_at_the_door(kit: RunnerKit, spec: dict[str, Any], field: str) -> None:
    """REQUEST_INVALID names the field; nothing is queued that would fail five launches later."""
    refusal = changes_nothing(kit, Reason.REQUEST_INVALID, lambda: kit.submit(**spec))
    assert refusal.metadata["field"] == field


def test_a_submitted_task_has_every_default_filled_in(kit: RunnerKit) -> None:
    """The lane with the fewest tasks, a name from the program, the default budgets, ONE_SHOT."""
    kit.submit(lane="a")
    request = pb.SubmitTaskRequest(spec={"argv": ["/bin/true"], "cwd": str(kit.directory)})
    shown = kit.ask("SubmitTask", request).task
    assert (shown.spec.lane, shown.spec.name, shown.spec.kind) == ("b", "true", task_pb2.TASK_KIND_ONE_SHOT)
    stored = kit.task(shown.task_id)
    assert (stored.premature_exits_max, stored.launch_failures_max, stored.stop_grace_ms) == (
        specs.PREMATURE_EXITS_DEFAULT,
        specs.LAUNCH_FAILURES_DEFAULT,
        specs.STOP_GRACE_MS_DEFAULT,
    )


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
def test_pages_of_tasks_show_every_task_once_newest_first(kit: RunnerKit, page_size: int) -> None:
    """Walked by token, also with a task that is submitted in the middle of the walk, which is not shown twice."""
    submitted = [kit.submit(lane=LANES[number % 2]).task_id for number in range(7)]
    request, seen = pb.ListTasksRequest(page_size=page_size), []
    while True:
        answer = kit.ask("ListTasks", request)
        assert len(answer.tasks) <= page_size
        seen += [task.task_id for task in answer.tasks]
        kit.submit()
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert seen == submitted[::-1]


def test_listings_keep_their_filters_across_pages(kit: RunnerKit) -> None:
    """By lane and by state."""
    in_a = [kit.submit(lane="a").task_id for _ in range(3)]
    for _ in range(3):
        kit.submit(lane="b")
    kit.cancel(in_a[1])
    request, seen = pb.ListTasksRequest(page_size=1, lane="a", states=["TASK_STATE_QUEUED"]), []
    while True:
        answer = kit.ask("ListTasks", request)
        seen += [task.task_id for task in answer.tasks]
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert seen == [in_a[2], in_a[0]]


@pytest.mark.parametrize("page_size", [1, 2, 3, 7, 100])
def test_pages_of_holds_show_every_hold_once_oldest_first(kit: RunnerKit, page_size: int) -> None:
    """Open ones by default, of all tasks; notices never; a hold that is closed in the middle of the walk skips nobody."""
    first, second = kit.running(lane="a"), kit.running(lane="b")
    asked = [kit.escalate((first, second)[number % 2]) for number in range(7)]
    kit.escalate(first, expects_reply=False)
    request, seen = pb.ListHoldsRequest(page_size=page_size), []
    while True:
        answer = kit.ask("ListHolds", request)
        assert len(answer.holds) <= page_size
        seen += [hold.escalation_id for hold in answer.holds]
        if kit.hold(asked[0]).open:
            kit.rule(asked[0])
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert seen == asked


def test_holds_of_one_task_in_chosen_states(kit: RunnerKit) -> None:
    """The filters of ListHolds."""
    first, second = kit.running(lane="a"), kit.running(lane="b")
    released, still_open = kit.escalate(first), kit.escalate(first)
    kit.escalate(second)
    kit.rule(released)
    every = ["HOLD_STATE_OPEN", "HOLD_STATE_RELEASED"]
    answer = kit.ask("ListHolds", pb.ListHoldsRequest(task_id=first.task_id, states=every))
    assert [hold.escalation_id for hold in answer.holds] == [released, still_open]


def test_a_page_token_that_no_listing_gave_is_refused(kit: RunnerKit) -> None:
    """REQUEST_INVALID, for every kind of nonsense."""
    for token in ("x", "-1", "1.5", "٣", "9" * 19):
        for method, request in (
            ("ListTasks", pb.ListTasksRequest(page_token=token)),
            ("ListHolds", pb.ListHoldsRequest(page_token=token)),
        ):
            refused(Reason.REQUEST_INVALID, lambda method=method, request=request: kit.ask(method, request))


def test_lanes_show_who_has_them(kit: RunnerKit) -> None:
    """The task with a worker, the queue, and how many are held."""
    ref = kit.running(lane="a")
    kit.submit(lane="a")
    kit.escalate(ref)
    shown = {
        lane.lane: (lane.task_id, lane.queued, lane.held) for lane in kit.ask("ListLanes", pb.ListLanesRequest()).lanes
    }
    assert shown == {"a": (ref.task_id, 1, 1), "b": ("", 0, 0)}


def test_r01_listings_of_large_things_fit_into_messages(kit: RunnerKit) -> None:
    """Whatever page size is asked for, an answer stays below what a client accepts, and following the tokens shows all."""
    ref = kit.running()
    asked = [kit.escalate(ref, f"{number} " + "x" * 65_000) for number in range(100)]
    for number in range(6):
        kit.ask("SendInput", pb.SendInputRequest(task_id=ref.task_id, text=f"{number} " + "y" * 1_000_000))
    shown: list[str] = []
    token = ""
    while True:
        page = kit.ask("ListHolds", pb.ListHoldsRequest(page_size=1_000, page_token=token))
        assert page.ByteSize() <= wire.MESSAGE_BYTES_MAX
        shown += [hold.escalation_id for hold in page.holds]
        if not (token := page.next_page_token):
            break
    assert shown == asked
    latest = kit.ask("GetTask", pb.GetTaskRequest(task_id=ref.task_id))
    assert latest.ByteSize() <= wire.MESSAGE_BYTES_MAX
    assert [message.input.text[:2] for message in latest.messages] == ["5 ", "4 ", "3 "]


def test_r01_a_listing_of_large_tasks_fits_into_messages(kit: RunnerKit) -> None:
    """The same for tasks, whose specs may be large."""
    made = [kit.submit(argv=["true", "z" * 120_000]).task_id for _ in range(40)]
    shown: list[str] = []
    token = ""
    while True:
        page = kit.ask("ListTasks", pb.ListTasksRequest(page_size=1_000, page_token=token))
        assert page.ByteSize() <= wire.MESSAGE_BYTES_MAX
        shown += [task.task_id for task in page.tasks]
        if not (token := page.next_page_token):
            break
    assert shown == made[::-1]
