"""The supervisor's tables hold by themselves what no code may break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lanewarden.clock import SystemClock
from lanewarden.errors import Reason, refuse
from lanewarden.ledger import WriteLedger
from lanewarden.store import Emitter, IntegrityError, Store, UnitOfWork
from supervisor_svc.core.filing import Filing, Stage
from supervisor_svc.core.leases import Timing
from supervisor_svc.store import audit, filings, incidents, outbox, runners, views
from supervisor_svc.store.audit import Entry
from supervisor_svc.store.outbox import Command
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.work import registry
from supervisor_svc.work.session import Session

EMIT = Emitter("tests.supervisor")
RUNNER = RunnerRow(
    runner_id="r1",
    incarnation="i1",
    generation=3,
    address="127.0.0.1:1",
    lanes=("a", "b"),
    version="1",
    store_id="s1",
    taken_sequence=0,
    registered_wall_ms=1,
)
RULING = Command(
    command_id="m1",
    kind=outbox.STEER,
    runner_id="r1",
    escalation_id="e1",
    task_id="t1",
    payload=b"p",
    identity="ada",
    role="operator",
    stored_ms=10,
    stored_wall_ms=20,
    traceparent="",
)
ENTRY = Entry(
    wall_ms=1,
    identity="ada",
    role="operator",
    action="Steer ruling APPROVE",
    task_id="t1",
    escalation_id="e1",
    request_id="m1",
    trace_id="",
    outcome="STORED",
)


def open_at(path: Path) -> Store:
    return Store.open(path, migrations=MIGRATIONS, ledger=WriteLedger(SystemClock()), threaded=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_at(tmp_path / "supervisor.sqlite3")
    opened.write_now(fill, emitter=EMIT)
    yield opened
    opened.close()


def fill(uow: UnitOfWork) -> None:
    runners.put(uow, RUNNER)
    views.put_escalation(
        uow, escalation_id="e1", runner_id="r1", task_id="t1", hold_state="OPEN", payload=b"1", wall_ms=1
    )


def do(store: Store, sql: str) -> None:
    store.write_now(lambda uow: uow.execute(sql), emitter=EMIT)


@pytest.mark.parametrize("sql", ["UPDATE audit SET outcome = 'OK'", "DELETE FROM audit"])
def test_audit_is_append_only(store: Store, sql: str) -> None:
    """No statement changes or removes an entry."""
    store.write_now(lambda uow: audit.append(uow, ENTRY), emitter=EMIT)
    with pytest.raises(IntegrityError, match="only ever added"):
        do(store, sql)
    (entry,) = store.read(lambda reader: audit.page(reader, task_id="", rows_max=9, after=None))
    assert entry == replace(ENTRY, sequence=1)


def test_audit_keeps_one_entry_per_request_and_outcome(store: Store) -> None:
    """A repeat that comes to the same adds nothing; another outcome, request or person does."""
    for entry in (ENTRY, ENTRY, replace(ENTRY, outcome="OK"), replace(ENTRY, identity="bob")):
        store.write_now(lambda uow, entry=entry: audit.append(uow, entry), emitter=EMIT)
    entries = store.read(lambda reader: audit.page(reader, task_id="t1", rows_max=9, after=None))
    assert [(each.identity, each.outcome) for each in entries] == [("ada", "STORED"), ("ada", "OK"), ("bob", "STORED")]
    assert store.read(lambda reader: audit.page(reader, task_id="t2", rows_max=9, after=None)) == []


def test_one_ruling_stands_per_hold(store: Store) -> None:
    """I3: the schema takes no second ruling on a hold, until the first is refused."""
    store.write_now(lambda uow: outbox.insert(uow, RULING), emitter=EMIT)
    second = replace(RULING, command_id="m2")
    with pytest.raises(IntegrityError):
        store.write_now(lambda uow: outbox.insert(uow, second), emitter=EMIT)
    refusal = refuse(Reason.HOLD_NOT_OPEN, "gone", state="CANCELED")
    assert store.write_now(lambda uow: outbox.settle(uow, "m1", refusal), emitter=EMIT)
    store.write_now(lambda uow: outbox.insert(uow, second), emitter=EMIT)
    first = store.read(lambda reader: outbox.find(reader, "m1"))
    assert first is not None
    assert first.refusal is not None
    assert (str(first.refusal), dict(first.refusal.metadata)) == ("HOLD_NOT_OPEN: gone", {"state": "CANCELED"})
    latest = store.read(lambda reader: outbox.latest_ruling(reader, "e1"))
    assert latest is not None
    assert latest.command_id == "m2"


def test_a_command_is_settled_once(store: Store) -> None:
    """What became of a command is recorded once; a late second word changes nothing."""
    store.write_now(lambda uow: outbox.insert(uow, RULING), emitter=EMIT)
    assert store.write_now(lambda uow: outbox.settle(uow, "m1", None), emitter=EMIT)
    late = refuse(Reason.HOLD_NOT_OPEN, "gone")
    assert not store.write_now(lambda uow: outbox.settle(uow, "m1", late), emitter=EMIT)
    command = store.read(lambda reader: outbox.find(reader, "m1"))
    assert command is not None
    assert command.state == outbox.DELIVERED


def test_prune_forgets_what_is_resolved(store: Store) -> None:
    """Resolved incidents go by the age of their end, and filings that are done with by the age of their last step; an
    incident that is not resolved, its filing, and a group of which one still waits are never forgotten.
    """

    def fill(uow: UnitOfWork) -> None:
        runners.put(uow, RUNNER)
        uow.execute(
            "INSERT INTO tasks (task_id, position, runner_id, state, version, payload, received_wall_ms)"
            " VALUES ('t1', 1, 'r1', 'SETTLED', 1, x'', 1)"
        )
        for key, resolved_ms in (("old", 10), ("new", 50), ("open", None)):
            incidents.put(uow, key, "t1", resolved=False, payload=b"first", now_ms=1)
            if resolved_ms is not None:
                incidents.put(uow, key, "t1", resolved=True, payload=b"resolved", now_ms=resolved_ms)
                incidents.put(uow, key, "t1", resolved=True, payload=b"told again", now_ms=90)
        for key, stage in (("old", "RECORDED"), ("new", "LOST"), ("open", "RECORDED"), ("lost", "LOST")):
            filings.put(uow, filing(key, stage=Stage(stage), external_id="x"))
        filings.put(uow, filing("waits", stage=Stage.OPEN))
        filings.put(uow, filing("waited for", stage=Stage.RECORDED, external_id="x", leader_key="waits"))

    def left(table: str) -> set[str]:
        return {row[0] for row in store.read(lambda reader: reader.query(f"SELECT key FROM {table}"))}

    store.write_now(fill, emitter=EMIT)
    assert store.write_now(lambda uow: incidents.prune(uow, 10, 9), emitter=EMIT) == 0
    assert store.write_now(lambda uow: incidents.prune(uow, 99, 1), emitter=EMIT) == 1
    assert left("incidents") == {"new", "open"}
    assert store.write_now(lambda uow: filings.prune(uow, 5, 9), emitter=EMIT) == 0
    assert store.write_now(lambda uow: filings.prune(uow, 99, 1), emitter=EMIT) == 1
    assert store.write_now(lambda uow: filings.prune(uow, 99, 9), emitter=EMIT) == 2
    assert left("filings") == {"open", "waits", "waited for"}


def filing(key: str, **more: Any) -> Filing:
    values: dict[str, Any] = {
        "key": key,
        "task_id": "t1",
        "runner_id": "r1",
        "epoch": 1,
        "kind": "settled",
        "cause": key,
        "claim_generation": 1,
        "summary": "",
        "diagnosis": "",
        "claimed_wall_ms": 1,
        "due_ms": 5,
        "leader_key": key,
    }
    return Filing(**{**values, **more})


def test_prune_never_forgets_what_waits(store: Store) -> None:
    """Old finished commands go, oldest first and bounded; one that no runner has had stays however old it is."""
    for number in range(4):
        command = replace(RULING, command_id=f"i{number}", escalation_id=None, stored_ms=number)
        store.write_now(lambda uow, command=command: outbox.insert(uow, command), emitter=EMIT)
        if number:
            store.write_now(lambda uow, number=number: outbox.settle(uow, f"i{number}", None), emitter=EMIT)
    assert store.write_now(lambda uow: outbox.prune(uow, 3, 1), emitter=EMIT) == 1
    assert store.write_now(lambda uow: outbox.prune(uow, 3, 9), emitter=EMIT) == 1
    kept = store.read(lambda reader: reader.query("SELECT command_id FROM outbox ORDER BY command_id"))
    assert [row[0] for row in kept] == ["i0", "i3"]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DELETE FROM runners", "never deleted"),
        ("UPDATE runners SET generation = 2", "never goes down"),
        ("UPDATE escalations SET hold_state = 'MAYBE'", "CHECK"),
    ],
)
def test_i07_generations_and_states_are_kept_by_the_schema(store: Store, sql: str, why: str) -> None:
    """A runner's row stays, its generation never goes down, and a state is one of the table's."""
    with pytest.raises(IntegrityError, match=why):
        do(store, sql)


def test_a_changed_escalation_keeps_its_place(store: Store) -> None:
    """Reports change an escalation in place: the inbox stays in the order in which it was filled."""
    for name, state in (("e2", "OPEN"), ("e1", "RELEASED")):
        store.write_now(
            lambda uow, name=name, state=state: views.put_escalation(
                uow,
                escalation_id=name,
                runner_id="r1",
                task_id="t1",
                hold_state=state,
                payload=state.encode(),
                wall_ms=2,
            ),
            emitter=EMIT,
        )
    found = store.read(
        lambda reader: views.escalations(reader, states=["OPEN", "RELEASED"], task_id="", rows_max=9, after=None)
    )
    assert [(view.position, view.payload) for view in found] == [(1, b"RELEASED"), (2, b"OPEN")]


def restore(store: Store, now_ms: int) -> RunnerRow:
    (row,) = store.write_now(
        lambda uow: registry.restore(Session(uow=uow, steady_ms=now_ms, wall_ms=0), Timing()), emitter=EMIT
    )
    return row


def test_p15_a_crash_loop_extends_a_lease_to_one_moment(store: Store) -> None:
    """However often the supervisor restarts, a runner that is gone gets one extension; one that renewed gets another."""
    assert restore(store, 100_000).extended_until_ms == 115_000
    assert restore(store, 101_000).extended_until_ms == 115_000
    assert restore(store, 900_000).extended_until_ms == 115_000
    store.write_now(lambda uow: runners.end_extension(uow, "r1"), emitter=EMIT)
    assert restore(store, 900_000).extended_until_ms == 915_000


def test_an_ended_lease_stays_ended_over_a_restart(store: Store) -> None:
    """The end of a grant raises the generation, is stored once, and no restart revives it."""
    assert store.write_now(lambda uow: runners.end_lease(uow, "r1", 3), emitter=EMIT)
    assert not store.write_now(lambda uow: runners.end_lease(uow, "r1", 3), emitter=EMIT)
    row = restore(store, 100_000)
    assert (row.generation, row.lease_ended, row.extended_until_ms) == (4, True, None)
    assert registry.lease_of(row, Timing()).ended
