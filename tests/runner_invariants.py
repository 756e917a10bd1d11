"""What must hold of a runner's store at every moment (the invariants of the design), checked from one look to the next.

A :class:`Watch` is told what the runner has accepted and then looks at the rows themselves, so that it can be used by any
driver: rules of hypothesis, a simulated world, a chaos run on a copy of the database.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from lanewarden.store import Connection

TERMINAL = {"SUCCEEDED", "FAILED", "CANCELED", "SETTLED"}
RULERS = {"operator", "supervisor"}
# What may be seen after what, with any number of steps in between.
HOLD_LATER = {
    "NONE": {"NONE"},
    "OPEN": {"OPEN", "RELEASED", "ACKNOWLEDGED", "CANCELED"},
    "RELEASED": {"RELEASED", "ACKNOWLEDGED", "CANCELED"},
    "ACKNOWLEDGED": {"ACKNOWLEDGED"},
    "CANCELED": {"CANCELED"},
}
MESSAGE_FINAL = {"ACKNOWLEDGED", "UNDELIVERED"}
# What a task may still change once it has ended: the command that follows a success, and who may hold that back.
AFTER_END = {
    "version",
    "pauses",
    "owner",
    "owner_role",
    "hook_state",
    "hook_tries",
    "hook_running",
    "hook_not_before_ms",
    "hook_summary",
}

Rows = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Accepted:
    """What the runner has said yes to. Every one of these must be found again, once (I2)."""

    escalations: dict[str, tuple[str, str]] = field(default_factory=dict)
    """escalation id → task, question"""
    acks: Counter[str] = field(default_factory=Counter)
    """escalation id → acks"""
    rulings: dict[str, str] = field(default_factory=dict)
    """ruling id → escalation id"""
    messages: dict[str, tuple[str, str]] = field(default_factory=dict)
    """id of an input or instruction → task, text"""
    taken: set[str] = field(default_factory=set)
    """ids of messages that a worker has acknowledged"""
    deadlines: Counter[str] = field(default_factory=Counter)
    """escalation id → how often its deadline was moved"""
    relives: Counter[str] = field(default_factory=Counter)
    """task id → how often it was retried or reopened after its end"""


class Watch:
    """Looks at a store again and again; a look raises ``AssertionError`` at the first thing that cannot be.

    It has to be let look after every step that commits: some of it is judged by what a single step may change.
    """

    def __init__(self) -> None:
        self.accepted = Accepted()
        self._tasks: Rows = {}
        self._holds: Rows = {}
        self._messages: Rows = {}
        self._incidents: Rows = {}
        self._moved: Counter[str] = Counter()
        self._relived: Counter[str] = Counter()

    def look(self, reader: Connection) -> None:
        """Check everything, against what was accepted and what was seen before."""
        before = self._tasks, self._holds
        self.look_at_rows(reader)
        self._accepted_is_there_once(self._holds, self._messages)
        self._only_who_may_has_moved(*before)

    def look_at_rows(self, reader: Connection) -> None:
        """Check what can be seen in the rows alone, where the answers are not known (or are still on their way)."""
        tasks = _rows(reader, "tasks", "task_id")
        holds = _rows(reader, "holds", "escalation_id")
        messages = _rows(reader, "messages", "message_id")
        gates = {
            (row["task_id"], row["epoch"], row["gate"]): row["decision"] for row in reader.query("SELECT * FROM gates")
        }
        self._nothing_goes_back(tasks, holds, messages)
        self._nothing_starts_in_a_pause(tasks)
        _attempts_and_states_agree(tasks, [dict(row) for row in reader.query("SELECT * FROM attempts")])
        self._holds_and_states_agree(tasks, holds, gates)
        _deadlines_park(tasks, holds)
        _limits_pause(tasks)
        self._actions_are_finite(tasks)
        self._claims_are_kept(_rows(reader, "incidents", "key"))
        _inboxes_and_states_agree(tasks, messages)
        _signals_are_answered(tasks, reader)
        _rulings_name_their_holds(holds, messages)
        self._tasks, self._holds, self._messages = tasks, holds, messages

    def _nothing_goes_back(self, tasks: Rows, holds: Rows, messages: Rows) -> None:
        for now, seen, what in (
            (tasks, self._tasks, "tasks"),
            (holds, self._holds, "escalations"),
            (messages, self._messages, "messages"),
        ):
            assert seen.keys() <= now.keys(), f"{what} are gone: {seen.keys() - now.keys()} (I2)"
        for task_id, before in self._tasks.items():
            task = tasks[task_id]
            assert task["version"] >= before["version"], f"the version of {task_id} went down"
            assert task == before or task["version"] > before["version"], f"{task_id} changed under its version"
            life, life_before = (task["epoch"], task["attempt"]), (before["epoch"], before["attempt"])
            assert life >= life_before, f"the attempts of {task_id} went down"
            if task["epoch"] == before["epoch"]:
                assert (task["progress"] or 0) >= (before["progress"] or 0), f"the progress of {task_id} went down"
                assert task["hook_tries"] >= before["hook_tries"], f"the tries of {task_id}'s command went down"
            if before["state"] in TERMINAL:
                _ended_tasks_stay(before, task)
            else:
                assert task["epoch"] == before["epoch"], f"{task_id} had not ended and is in its next epoch"
        for escalation_id, before in self._holds.items():
            hold = holds[escalation_id]
            assert hold["state"] in HOLD_LATER[before["state"]], f"{escalation_id}: {hold['state']} again"
            assert before["ruling_id"] in (None, hold["ruling_id"]), f"the ruling on {escalation_id} was replaced"
            assert hold["reminders"] >= before["reminders"], f"the reminders of {escalation_id} went down"
            if before["state"] != "OPEN":
                timers = ("deadline_ms", "expired", "reminders", "owed_by")
                assert [hold[key] for key in timers] == [before[key] for key in timers], (
                    f"a timer of {escalation_id} went on after it was closed"
                )
        for message_id, before in self._messages.items():
            state = messages[message_id]["state"]
            assert before["state"] not in MESSAGE_FINAL or state == before["state"], f"{message_id} is {state} again"

    def _nothing_starts_in_a_pause(self, tasks: Rows) -> None:
        """H16: neither an attempt nor an on_success command, whatever the cause of the pause."""
        for task_id, before in self._tasks.items():
            task = tasks[task_id]
            since = before if task["epoch"] == before["epoch"] else {"attempt": 0, "hook_tries": 0}
            started, tried = (task[count] > since[count] for count in ("attempt", "hook_tries"))
            assert not (started or tried) or before["pauses"] == "[]", f"{task_id} was started in a pause"

    def _only_who_may_has_moved(self, tasks_before: Rows, holds_before: Rows) -> None:
        """A deadline is moved by ExtendHold, and an end is undone by a retry or a reopen, and by nothing else."""
        for escalation_id, before in holds_before.items():
            hold, told = self._holds[escalation_id], self.accepted.deadlines[escalation_id]
            if told == self._moved[escalation_id]:
                assert hold["deadline_ms"] == before["deadline_ms"], f"the deadline of {escalation_id} was moved"
                assert hold["expired"] >= before["expired"], f"{escalation_id} is not expired any more"
        for task_id, before in tasks_before.items():
            if before["state"] in TERMINAL and self._tasks[task_id]["state"] not in TERMINAL:
                self._relived[task_id] += 1
        assert self._relived == self.accepted.relives, "a task has left its end, and nobody retried or reopened it (I9)"
        self._moved = self.accepted.deadlines.copy()

    def _actions_are_finite(self, tasks: Rows) -> None:
        """I8: within an epoch a wake is spent once and a relaunch is never given back; an intent ends with its task."""
        for task_id, task in tasks.items():
            before = self._tasks.get(task_id)
            if before is not None and before["epoch"] == task["epoch"]:
                assert task["woken"] >= before["woken"], f"the wake of {task_id} was given back"
                assert 0 <= task["relaunches"] - before["relaunches"] <= 1, f"{task_id} was relaunched more than once"
                if before["settle_summary"] is not None:
                    kept = task["settle_summary"] == before["settle_summary"]
                    assert kept or task["state"] == "SETTLED", f"{task_id} was to be settled and is {task['state']}"
            if task["state"] in TERMINAL:
                assert task["settle_summary"] is None, f"{task_id} has ended and is still to be settled"
                assert task["relaunch_cause"] is None, f"{task_id} has ended and is still to be relaunched"
            assert task["state"] != "SETTLED" or task["summary_author"] == "SUPERVISOR"

    def _claims_are_kept(self, incidents: Rows) -> None:
        assert self._incidents.keys() <= incidents.keys(), "incidents are gone"
        unresolved = [(row["task_id"], row["epoch"]) for row in incidents.values() if row["state"] != "RESOLVED"]
        assert len(unresolved) == len(set(unresolved)), "an epoch has two incidents that are not resolved (I8)"
        for key, before in self._incidents.items():
            incident = incidents[key]
            assert incident["claim_generation"] >= before["claim_generation"], f"the claim on {key} went back"
            if incident["claim_generation"] == before["claim_generation"]:
                assert incident["holder"] == before["holder"], f"{key} has changed hands under one generation"
            if before["external_id"]:
                kept = ("external_id", "holder", "claim_generation", "tries", "failure")
                assert [incident[name] for name in kept] == [before[name] for name in kept], f"{key} was filed again"
            assert before["state"] != "FILED" or incident["state"] in ("FILED", "RESOLVED"), f"{key} was unfiled"
        self._incidents = incidents

    def _holds_and_states_agree(self, tasks: Rows, holds: Rows, gates: dict[tuple[str, int, str], str]) -> None:
        """I1: success and its command only with everything closed; HELD is exactly: a ruling is owed (or a cancel waits for
        the worker).
        """
        by_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for hold in holds.values():
            by_task[hold["task_id"]].append(hold)
        for task_id, task in tasks.items():
            states = {hold["state"] for hold in by_task[task_id]}
            if task["state"] == "SUCCEEDED":
                # The end of a task cancels what is open: a hold that is CANCELED since the last look was open when the task
                # "succeeded".
                canceled = [hold for hold in by_task[task_id] if hold["state"] == "CANCELED"]
                fresh = [
                    hold for hold in canceled if self._holds.get(hold["escalation_id"], {}).get("state") != "CANCELED"
                ]
                assert not fresh, f"{task_id} has SUCCEEDED over a hold (I1)"
                passed = {gate: gates.get((task_id, task["epoch"], gate)) for gate in json.loads(task["gates"])}
                missing = [gate for gate, decision in passed.items() if decision not in ("APPROVED", "WAIVED")]
                assert not missing, f"{task_id} has SUCCEEDED without {missing} (I1)"
            else:
                hook = (task["hook_state"], task["hook_running"])
                assert hook == ("NONE", 0), (
                    f"the on_success command of {task_id} is {hook}, and it is {task['state']} (I1)"
                )
            assert not task["hook_running"] or task["hook_state"] == "PENDING"
            if "OPEN" in states:
                assert task["state"] == "HELD", f"{task_id} is {task['state']} and a ruling is owed"
            elif task["state"] == "HELD":
                assert task["worker_alive"], f"{task_id} is HELD by nothing"
                assert task["cancel_cause"] is not None, f"{task_id} is HELD by nothing"
            if task["state"] in TERMINAL:
                assert not {"OPEN", "RELEASED"} & states, f"{task_id} has ended with a hold that is not closed"

    def _accepted_is_there_once(self, holds: Rows, messages: Rows) -> None:
        accepted = self.accepted
        found = {key: (hold["task_id"], hold["question"]) for key, hold in holds.items()}
        assert found == accepted.escalations, "the escalations are not those that were accepted (I2)"
        acks = {key: hold["acks"] for key, hold in holds.items() if hold["acks"]}
        assert acks == dict(accepted.acks), "the acks are not those that were accepted (I2)"
        rulings = {hold["ruling_id"]: key for key, hold in holds.items() if hold["ruling_id"]}
        assert rulings == accepted.rulings, "the rulings are not those that were accepted (I2)"
        sent = {
            key: (row["task_id"], row["body"])
            for key, row in messages.items()
            if row["kind"] != "RULING" and row["sent_role"] != "runner"  # which is a child that tells its parent
        }
        assert sent == accepted.messages, "the messages are not those that were accepted (I2)"
        taken = {key for key, row in messages.items() if row["state"] == "ACKNOWLEDGED"}
        assert taken == accepted.taken, "what workers have acknowledged is not what is stored"


def _rows(reader: Connection, table: str, key: str) -> Rows:
    return {row[key]: dict(row) for row in reader.query(f"SELECT * FROM {table}")}


def _signals_are_answered(tasks: Rows, reader: Connection) -> None:
    """I10: what is asked for is outstanding exactly while it is asked, and nothing is asked of what is over."""
    asked: defaultdict[str, set[str]] = defaultdict(set)
    for row in reader.query("SELECT task_id, kind, epoch, attempt FROM signals WHERE discharged_how IS NULL"):
        asked[row["task_id"]].add(row["kind"])
        task = tasks[row["task_id"]]
        if row["kind"] == "STOP":
            assert (row["epoch"], row["attempt"]) == (task["epoch"], task["attempt"]), (
                f"{task['task_id']}: a stale stop"
            )
            assert task["worker_alive"] or task["state"] == "STARTING", f"{task['task_id']}: a stop of nobody"
    for task_id, task in tasks.items():
        assert ("PAUSE" in asked[task_id]) == ("OPERATOR" in json.loads(task["pauses"])), f"{task_id}: PAUSE"
        canceling = task["cancel_cause"] is not None and task["state"] not in TERMINAL
        assert ("CANCEL" in asked[task_id]) == canceling, f"{task_id}: CANCEL"
        assert task["state"] not in TERMINAL or asked[task_id] <= {"PAUSE"}, f"{task_id} is over: {asked[task_id]}"


def _attempts_and_states_agree(tasks: Rows, attempts: list[dict[str, Any]]) -> None:
    """I4, I5: who is said to run has exactly one attempt that has not ended, and it is the current one."""
    unended = [attempt for attempt in attempts if attempt["ended"] is None]
    current: dict[str, int] = {}
    lanes: set[str] = set()
    for attempt in unended:
        task = tasks[attempt["task_id"]]
        assert task["task_id"] not in current, f"two attempts of {task['task_id']} have not ended (I5)"
        assert task["lane"] not in lanes, f"two attempts in lane {task['lane']} have not ended"
        life = (attempt["epoch"], attempt["attempt"])
        assert life == (task["epoch"], task["attempt"]), f"an old attempt of {task['task_id']} has not ended"
        assert task["state"] in ("STARTING", "RUNNING", "HELD"), (
            f"{task['task_id']} is {task['state']} and has a worker"
        )
        current[task["task_id"]] = attempt["attempt"]
        lanes.add(task["lane"])
    for task_id, task in tasks.items():
        lives = task["state"] in ("STARTING", "RUNNING") or task["worker_alive"]
        assert not lives or task_id in current, f"{task_id} is {task['state']}, but no attempt is unended (I4)"
        assert bool(task["worker_alive"]) == (task_id in current and task["state"] != "STARTING")
        assert task["premature_exits"] <= task["premature_exits_max"] + 1, f"{task_id} has spent more than its budget"
        assert task["state"] not in TERMINAL or (
            task["summary"] and task["summary_author"] and task["finished_wall_ms"]
        )


def _deadlines_park(tasks: Rows, holds: Rows) -> None:
    """H17: a task is parked exactly while an open hold of it is past its deadline; that decides nothing else."""
    late = {hold["task_id"] for hold in holds.values() if hold["state"] == "OPEN" and hold["expired"]}
    for task_id, task in tasks.items():
        parked = "HOLD_DEADLINE" in json.loads(task["pauses"])
        assert parked or task_id not in late, f"a hold of {task_id} is past its deadline, and it is not parked"
        # A cancel closes the holds at once; the task ends, and so does the park, when its worker has been stopped.
        assert not parked or task_id in late or task["cancel_cause"] is not None, f"{task_id} is parked by nothing"
        assert not parked or task["state"] == "HELD", f"{task_id} is parked and {task['state']}"


def _limits_pause(tasks: Rows) -> None:
    """P09: a task waits for a limit of use exactly while it knows when that ends, and nothing of it runs meanwhile."""
    for task_id, task in tasks.items():
        limited = "USAGE_LIMIT" in json.loads(task["pauses"])
        assert limited == (task["limited_until_ms"] is not None), f"{task_id} waits for a limit that never ends"
        assert not limited or not task["worker_alive"], f"{task_id} waits for a limit, and its worker is alive"
        assert not limited or task["state"] in ("QUEUED", "HELD"), f"{task_id} waits for a limit and is {task['state']}"


def _ended_tasks_stay(before: dict[str, Any], task: dict[str, Any]) -> None:
    """I9: an end is left into the queue and by two ways only, and is not touched otherwise."""
    task_id = task["task_id"]
    if task["state"] in TERMINAL:
        changed = {name for name in task if task[name] != before[name]}
        assert changed <= AFTER_END, f"{task_id} has ended and changed: {changed}"
        # The version rises with what is only shown with a task: the claim on its incident.
        assert changed <= {"version"} or before["state"] == "SUCCEEDED", f"{task_id} has ended and changed: {changed}"
        return
    left_to = {"QUEUED", "IDLE"} if task["kind"] == "SESSION" else {"QUEUED"}
    assert task["state"] in left_to, f"{task_id} went from {before['state']} to {task['state']}"
    reopened = (task["epoch"], task["attempt"]) == (before["epoch"] + 1, 0)
    retried = before["state"] == "FAILED" and (task["epoch"], task["attempt"]) == (before["epoch"], before["attempt"])
    assert reopened or retried, f"{task_id} has left {before['state']} by no way that there is"
    assert not before["hook_running"], f"{task_id} was reopened under its running on_success command"


def _inboxes_and_states_agree(tasks: Rows, messages: Rows) -> None:
    """A session rests only without input; what has ended waits for nothing; only SETTLED keeps what it did not take."""
    for message_id, message in messages.items():
        task = tasks[message["task_id"]]
        waits = message["state"] in ("PENDING", "IN_FLIGHT")
        assert not waits or task["state"] not in TERMINAL, f"{task['task_id']} has ended, and {message_id} waits"
        assert message["state"] != "PARKED" or task["state"] == "SETTLED", f"{message_id} is parked for {task['state']}"
        assert not (waits and message["kind"] == "INPUT") or task["state"] != "IDLE", (
            f"{task['task_id']} rests on input"
        )
    for task_id, task in tasks.items():
        assert task["state"] != "IDLE" or task["kind"] == "SESSION", f"{task_id} is no session and rests"
        assert task["state"] != "SUCCEEDED" or task["kind"] == "ONE_SHOT" or task["outcome"] == "SUCCEEDED", (
            f"session {task_id} has SUCCEEDED without its worker's word"
        )


def _rulings_name_their_holds(holds: Rows, messages: Rows) -> None:
    """I3: what is released was released by one ruling, which names it, given by a role that may."""
    carried: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in messages.values():
        assert (message["kind"] == "RULING") == (message["escalation_id"] is not None)
        if message["escalation_id"] is not None:
            carried[message["escalation_id"]].append(message)
    for escalation_id, hold in holds.items():
        rulings = carried[escalation_id]
        assert [each["message_id"] for each in rulings] == [hold["ruling_id"]] * len(rulings)
        assert len(rulings) == (hold["ruling_id"] is not None), f"{escalation_id} has {len(rulings)} rulings (I3)"
        if hold["state"] in ("RELEASED", "ACKNOWLEDGED"):
            assert rulings, f"{escalation_id} is {hold['state']} without a ruling (I3)"
            assert rulings[0]["task_id"] == hold["task_id"], f"the ruling on {escalation_id} went to another task"
            assert hold["ruled_role"] in RULERS, f"{escalation_id} was released by a {hold['ruled_role']}"
        if hold["state"] in ("NONE", "OPEN"):
            assert not rulings, f"{escalation_id} is {hold['state']} and has a ruling"
        if hold["state"] == "ACKNOWLEDGED":
            assert rulings[0]["state"] == "ACKNOWLEDGED", f"{escalation_id} was closed by nobody's acknowledgement"
