"""The runner's tables. Every table is STRICT and every state is CHECKed, so that no code can store another."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

from lane_runner_svc.store.schema_signals import SIGNALS

MIGRATIONS = Migrations("lane_runner")

_TABLES = """
CREATE TABLE tasks (
    task_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL UNIQUE,
    name TEXT NOT NULL,
    lane TEXT NOT NULL,
    gates TEXT NOT NULL,
    spec BLOB NOT NULL,
    stop_grace_ms INTEGER NOT NULL,
    premature_exits_max INTEGER NOT NULL,
    launch_failures_max INTEGER NOT NULL,
    submitted_wall_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'QUEUED', 'STARTING', 'RUNNING', 'HELD', 'IDLE', 'SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED')),
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    worker_alive INTEGER NOT NULL,
    pauses TEXT NOT NULL,
    not_before_ms INTEGER NOT NULL,
    launch_failures INTEGER NOT NULL,
    premature_exits INTEGER NOT NULL,
    progress INTEGER,
    progress_note TEXT NOT NULL,
    cancel_cause TEXT,
    outcome TEXT CHECK (outcome IN ('SUCCEEDED', 'FAILED')),
    outcome_summary TEXT NOT NULL,
    exit_code INTEGER,
    exit_signal INTEGER,
    summary TEXT NOT NULL,
    summary_author TEXT CHECK (summary_author IN ('WORKER', 'RUNNER', 'SUPERVISOR', 'OPERATOR')),
    finished_wall_ms INTEGER,
    version INTEGER NOT NULL,
    CHECK (state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED') OR (summary <> '' AND summary_author IS NOT NULL))
) STRICT;
CREATE INDEX tasks_unfinished ON tasks (lane, state, position)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED');

CREATE TABLE attempts (
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    token_hash BLOB NOT NULL UNIQUE,
    reason TEXT NOT NULL,
    claimed_wall_ms INTEGER NOT NULL,
    pid INTEGER,
    start_ticks INTEGER,
    boot_id TEXT,
    stop_cause TEXT,
    ended TEXT CHECK (ended IN ('EXITED', 'SIGNALED', 'NEVER_STARTED', 'SHIM_LOST', 'LAUNCH_FAILED')),
    ended_detail TEXT,
    ended_wall_ms INTEGER,
    PRIMARY KEY (task_id, epoch, attempt)
) STRICT;
CREATE INDEX attempts_alive ON attempts (task_id) WHERE ended IS NULL;

CREATE TABLE holds (
    position INTEGER PRIMARY KEY,
    escalation_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    question TEXT NOT NULL,
    options TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('NONE', 'OPEN', 'RELEASED', 'ACKNOWLEDGED', 'CANCELED')),
    opened_wall_ms INTEGER NOT NULL,
    closed_wall_ms INTEGER,
    cancel_cause TEXT NOT NULL,
    acks INTEGER NOT NULL,
    acked_by TEXT,
    acked_role TEXT,
    acked_wall_ms INTEGER,
    expected_by_wall_ms INTEGER,
    ack_note TEXT NOT NULL,
    ruling_id TEXT,
    decision TEXT CHECK (decision IN ('APPROVE', 'REJECT', 'REVISE', 'CHOOSE')),
    instructions TEXT,
    option_key TEXT,
    ratifies TEXT,
    ruled_by TEXT,
    ruled_role TEXT,
    ruled_wall_ms INTEGER,
    UNIQUE (task_id, epoch, attempt, sequence),
    CHECK (state NOT IN ('RELEASED', 'ACKNOWLEDGED') OR (ruling_id IS NOT NULL AND decision IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX holds_ruled ON holds (ruling_id) WHERE ruling_id IS NOT NULL;
CREATE INDEX holds_unclosed ON holds (task_id, state) WHERE state IN ('OPEN', 'RELEASED');

CREATE TABLE messages (
    message_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    sequence INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('RULING', 'INSTRUCTION', 'INPUT')),
    escalation_id TEXT REFERENCES holds (escalation_id),
    body TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('PENDING', 'IN_FLIGHT', 'ACKNOWLEDGED', 'PARKED', 'UNDELIVERED')),
    sent_by TEXT NOT NULL,
    sent_role TEXT NOT NULL,
    sent_wall_ms INTEGER NOT NULL,
    UNIQUE (task_id, sequence)
) STRICT;
CREATE INDEX messages_waiting ON messages (task_id, sequence) WHERE state IN ('PENDING', 'IN_FLIGHT');

CREATE TABLE gates (
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    gate TEXT NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('APPROVED', 'REVISE', 'REJECTED', 'WAIVED')),
    decided_by TEXT NOT NULL,
    decided_role TEXT NOT NULL,
    decided_wall_ms INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (task_id, epoch, gate)
) STRICT;

CREATE TABLE outbox (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('task', 'escalation', 'new_escalation')),
    entity_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) STRICT;
"""


_PATIENCE = """
ALTER TABLE tasks ADD COLUMN patience TEXT NOT NULL DEFAULT '[900000, null, []]';
ALTER TABLE tasks ADD COLUMN on_success TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tasks ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN owner_role TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN hook_state TEXT NOT NULL DEFAULT 'NONE'
    CHECK (hook_state IN ('NONE', 'PENDING', 'DONE', 'FAILED'));
ALTER TABLE tasks ADD COLUMN hook_tries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN hook_running INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN hook_not_before_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN hook_summary TEXT NOT NULL DEFAULT '';
CREATE INDEX tasks_hooks ON tasks (hook_not_before_ms) WHERE hook_state = 'PENDING';

ALTER TABLE holds ADD COLUMN opened_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN key TEXT NOT NULL DEFAULT '';
ALTER TABLE holds ADD COLUMN deadline_ms INTEGER;
ALTER TABLE holds ADD COLUMN expired INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN reminders INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN reminder_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN next_reminder_ms INTEGER;
ALTER TABLE holds ADD COLUMN approvers_told INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holds ADD COLUMN owed_by TEXT NOT NULL DEFAULT '';
ALTER TABLE holds ADD COLUMN timer_ms INTEGER;
CREATE INDEX holds_timers ON holds (timer_ms) WHERE state = 'OPEN' AND timer_ms IS NOT NULL;

CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    wall_ms INTEGER NOT NULL,
    identity TEXT NOT NULL,
    role TEXT NOT NULL,
    action TEXT NOT NULL,
    task_id TEXT NOT NULL,
    escalation_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    trace_id TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_task ON audit (task_id, sequence);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END
"""

_SUPERVISION = """
CREATE TABLE supervision (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL CHECK (generation > 0),
    supervisor_id TEXT NOT NULL,
    supervisor_incarnation TEXT NOT NULL,
    address TEXT NOT NULL,
    live INTEGER NOT NULL CHECK (live IN (0, 1))
) STRICT;
CREATE TRIGGER supervision_stays BEFORE DELETE ON supervision
BEGIN SELECT RAISE(ABORT, 'the generation is never forgotten'); END;
CREATE TRIGGER supervision_rises BEFORE UPDATE OF generation ON supervision WHEN new.generation < old.generation
BEGIN SELECT RAISE(ABORT, 'a generation never goes down'); END
"""

_BUDGETS = """
ALTER TABLE tasks ADD COLUMN claimed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN fruitless_ms TEXT NOT NULL DEFAULT '[]';
ALTER TABLE tasks ADD COLUMN limited_until_ms INTEGER;
CREATE INDEX tasks_limits ON tasks (limited_until_ms) WHERE limited_until_ms IS NOT NULL;

ALTER TABLE attempts ADD COLUMN retry_ms INTEGER;

CREATE TABLE evidence (
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    sequence INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    method TEXT NOT NULL,
    content TEXT NOT NULL,
    reason TEXT NOT NULL,
    request_id TEXT NOT NULL,
    wall_ms INTEGER NOT NULL,
    PRIMARY KEY (task_id, sequence)
) STRICT;
CREATE TRIGGER evidence_is_not_changed BEFORE UPDATE ON evidence
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END;
CREATE TRIGGER evidence_is_not_deleted BEFORE DELETE ON evidence
BEGIN SELECT RAISE(ABORT, 'evidence is append-only'); END
"""

_LEASES = """
ALTER TABLE supervision ADD COLUMN lease_generation_seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN hold_on_supervisor_loss INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tasks_hold_on_supervisor_loss ON tasks (position) WHERE hold_on_supervisor_loss = 1
"""

_ACTIONS = """
ALTER TABLE tasks ADD COLUMN kind TEXT NOT NULL DEFAULT 'ONE_SHOT' CHECK (kind IN ('ONE_SHOT', 'SESSION'));
ALTER TABLE tasks ADD COLUMN parent_task_id TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN settle_summary TEXT;
ALTER TABLE tasks ADD COLUMN settle_diagnosis TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN relaunch_cause TEXT;
ALTER TABLE tasks ADD COLUMN relaunches INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN woken INTEGER NOT NULL DEFAULT 0 CHECK (woken IN (0, 1));
ALTER TABLE tasks ADD COLUMN diagnosis TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN inputs_through INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tasks_children ON tasks (parent_task_id)
    WHERE parent_task_id <> '' AND state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED');
CREATE TABLE incidents (
    position INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('CLAIMED', 'FILED', 'FILING_FAILED', 'RESOLVED')),
    holder TEXT NOT NULL,
    claim_generation INTEGER NOT NULL CHECK (claim_generation > 0),
    claimed_wall_ms INTEGER NOT NULL,
    external_id TEXT NOT NULL,
    url TEXT NOT NULL,
    tries INTEGER NOT NULL,
    failure TEXT NOT NULL,
    follows TEXT NOT NULL,
    also_task_ids TEXT NOT NULL,
    CHECK (state <> 'FILED' OR external_id <> '')
) STRICT;
CREATE INDEX incidents_of_task ON incidents (task_id, epoch);
CREATE UNIQUE INDEX incidents_open ON incidents (task_id, epoch) WHERE state <> 'RESOLVED';
CREATE TRIGGER incident_claims_rise BEFORE UPDATE OF claim_generation ON incidents
    WHEN new.claim_generation < old.claim_generation
BEGIN SELECT RAISE(ABORT, 'the generation of a claim never goes down'); END
"""


@MIGRATIONS()
def first_tables(db: Database) -> None:
    """Everything the main job needs."""
    _run(db, _TABLES)


@MIGRATIONS()
def patience_hooks_audit(db: Database) -> None:
    """Timers of holds, on_success commands, owners, the audit."""
    _run(db, _PATIENCE)


@MIGRATIONS()
def supervision(db: Database) -> None:
    """Who supervises this runner."""
    _run(db, _SUPERVISION)


@MIGRATIONS()
def budgets_limits_evidence(db: Database) -> None:
    """The rate of launches, limits of use, what old attempts say."""
    _run(db, _BUDGETS)


@MIGRATIONS()
def leases(db: Database) -> None:
    """The highest lease generation that was told, and tasks that wait while nobody supervises."""
    _run(db, _LEASES)


@MIGRATIONS()
def actions_sessions_incidents(db: Database) -> None:
    """What supervisors do by themselves, sessions, parents, claims on incidents."""
    _run(db, _ACTIONS)


@MIGRATIONS()
def sensors(db: Database) -> None:
    """What was last read of the progress of a program that does not report it."""
    _run(db, "ALTER TABLE attempts ADD COLUMN sensed INTEGER")


@MIGRATIONS()
def signals_contexts_checkpoints(db: Database) -> None:
    """One-shot requests, context windows, what their checkpoint writers came to, what workers were told."""
    _run(db, SIGNALS)


@MIGRATIONS()
def earlier_measurements(db: Database) -> None:
    """Which measurements of its attempt a context window has seen before the latest, as a JSON array of a few ids."""
    _run(db, "ALTER TABLE contexts ADD COLUMN earlier_ids TEXT NOT NULL DEFAULT '[]'")


@MIGRATIONS()
def traces_of_messages(db: Database) -> None:
    """The trace of whoever sent a message, for its worker's acknowledgement."""
    _run(db, "ALTER TABLE messages ADD COLUMN traceparent TEXT NOT NULL DEFAULT ''")


def _run(db: Database, statements: str) -> None:
    for statement in statements.split(";\n"):
        if statement.strip():
            db.execute(statement)
