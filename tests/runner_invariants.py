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


class Watch:
    """Looks at a store again and again; :meth:`look` raises ``AssertionError`` at the first thing that cannot be."""

    def __init__(self) -> None:
        self.accepted = Accepted()
        self._tasks: Rows = {}
        self._holds: Rows = {}
        self._messages: Rows = {}

    def look(self, reader: Connection) -> None:
        """Check everything, against what was accepted and what was seen before."""
        tasks = _rows(reader, "tasks", "task_id")
        holds = _rows(reader, "holds", "escalation_id")
        messages = _rows(reader, "messages", "message_id")
        gates = {(row["task_id"], row["gate"]): row["decision"] for row in reader.query("SELECT * FROM gates")}
        self._accepted_is_there_once(holds, messages)
        self._nothing_goes_back(tasks, holds, messages)
        _attempts_and_states_agree(tasks, [dict(row) for row in reader.query("SELECT * FROM attempts")])
        _holds_and_states_agree(tasks, holds, gates)
        _rulings_name_their_holds(holds, messages)
        self._tasks, self._holds, self._messages = tasks, holds, messages

    def _nothing_goes_back(self, tasks: Rows, holds: Rows, messages: Rows) -> None:
        for task_id, before in self._tasks.items():
            task = tasks[task_id]
            assert task["version"] >= before["version"], f"the version of {task_id} went down"
            assert task == before or task["version"] > before["version"], f"{task_id} changed under its version"
            assert task["attempt"] >= before["attempt"], f"the attempts of {task_id} went down"
            assert (task["progress"] or 0) >= (before["progress"] or 0), f"the progress of {task_id} went down"
            assert before["state"] not in TERMINAL or task == before, f"{task_id} has ended and changed"
        for escalation_id, before in self._holds.items():
            hold = holds[escalation_id]
            assert hold["state"] in HOLD_LATER[before["state"]], f"{escalation_id}: {hold['state']} again"
            assert before["ruling_id"] in (None, hold["ruling_id"]), f"the ruling on {escalation_id} was replaced"
        for message_id, before in self._messages.items():
            state = messages[message_id]["state"]
            assert before["state"] not in MESSAGE_FINAL or state == before["state"], f"{message_id} is {state} again"

    def _accepted_is_there_once(self, holds: Rows, messages: Rows) -> None:
        accepted = self.accepted
        found = {key: (hold["task_id"], hold["question"]) for key, hold in holds.items()}
        assert found == accepted.escalations, "the escalations are not those that were accepted (I2)"
        acks = {key: hold["acks"] for key, hold in holds.items() if hold["acks"]}
        assert acks == dict(accepted.acks), "the acks are not those that were accepted (I2)"
        rulings = {hold["ruling_id"]: key for key, hold in holds.items() if hold["ruling_id"]}
        assert rulings == accepted.rulings, "the rulings are not those that were accepted (I2)"
        sent = {key: (row["task_id"], row["body"]) for key, row in messages.items() if row["kind"] != "RULING"}
        assert sent == accepted.messages, "the messages are not those that were accepted (I2)"
        taken = {key for key, row in messages.items() if row["state"] == "ACKNOWLEDGED"}
        assert taken == accepted.taken, "what workers have acknowledged is not what is stored"


def _rows(reader: Connection, table: str, key: str) -> Rows:
    return {row[key]: dict(row) for row in reader.query(f"SELECT * FROM {table}")}


def _attempts_and_states_agree(tasks: Rows, attempts: list[dict[str, Any]]) -> None:
    """I4, I5: who is said to run has exactly one attempt that has not ended, and it is the current one."""
    unended = [attempt for attempt in attempts if attempt["ended"] is None]
    current: dict[str, int] = {}
    lanes: set[str] = set()
    for attempt in unended:
        task = tasks[attempt["task_id"]]
        assert task["task_id"] not in current, f"two attempts of {task['task_id']} have not ended (I5)"
        assert task["lane"] not in lanes, f"two attempts in lane {task['lane']} have not ended"
        assert attempt["attempt"] == task["attempt"], f"an old attempt of {task['task_id']} has not ended"
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


def _holds_and_states_agree(tasks: Rows, holds: Rows, gates: dict[tuple[str, str], str]) -> None:
    """I1: success only with everything closed; HELD is exactly: a ruling is owed (or a cancel waits for the worker)."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for hold in holds.values():
        by_task[hold["task_id"]].append(hold["state"])
    for task_id, task in tasks.items():
        states = by_task[task_id]
        if task["state"] == "SUCCEEDED":
            # The end of a task cancels what is open, so a CANCELED hold here was open when it "succeeded".
            assert set(states) <= {"NONE", "ACKNOWLEDGED"}, f"{task_id} has SUCCEEDED over a hold (I1)"
            missing = [g for g in json.loads(task["gates"]) if gates.get((task_id, g)) not in ("APPROVED", "WAIVED")]
            assert not missing, f"{task_id} has SUCCEEDED without {missing} (I1)"
        if "OPEN" in states:
            assert task["state"] == "HELD", f"{task_id} is {task['state']} and a ruling is owed"
        elif task["state"] == "HELD":
            assert task["worker_alive"], f"{task_id} is HELD by nothing"
            assert task["cancel_cause"] is not None, f"{task_id} is HELD by nothing"
        if task["state"] in TERMINAL:
            assert not {"OPEN", "RELEASED"} & set(states), f"{task_id} has ended with a hold that is not closed"


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
