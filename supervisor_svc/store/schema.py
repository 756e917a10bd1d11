"""The supervisor's tables. Every table is STRICT and every state is CHECKed, so that no code can store another."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

MIGRATIONS = Migrations("supervisor")

_STATEMENTS = (
    """
CREATE TABLE runners (
    runner_id TEXT PRIMARY KEY,
    incarnation TEXT NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0),
    lease_ended INTEGER NOT NULL CHECK (lease_ended IN (0, 1)),
    extended_until_ms INTEGER,
    address TEXT NOT NULL,
    lanes TEXT NOT NULL CHECK (json_valid(lanes)),
    version TEXT NOT NULL,
    store_id TEXT NOT NULL,
    taken_sequence INTEGER NOT NULL CHECK (taken_sequence >= 0),
    registered_wall_ms INTEGER NOT NULL
) STRICT
""",
    # A generation is never used again, so the row that remembers it never goes.
    """
CREATE TRIGGER runners_stay BEFORE DELETE ON runners
BEGIN SELECT RAISE(ABORT, 'a runner is never deleted'); END
""",
    """
CREATE TRIGGER generations_rise BEFORE UPDATE OF generation ON runners WHEN new.generation < old.generation
BEGIN SELECT RAISE(ABORT, 'a generation never goes down'); END
""",
    """
CREATE TABLE escalations (
    escalation_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL UNIQUE,
    runner_id TEXT NOT NULL REFERENCES runners (runner_id),
    task_id TEXT NOT NULL,
    hold_state TEXT NOT NULL CHECK (hold_state IN ('NONE', 'OPEN', 'RELEASED', 'ACKNOWLEDGED', 'CANCELED')),
    payload BLOB NOT NULL,
    received_wall_ms INTEGER NOT NULL
) STRICT
""",
    "CREATE INDEX escalations_by_state ON escalations (hold_state, position)",
    "CREATE INDEX escalations_by_task ON escalations (task_id, position)",
    """
CREATE TABLE tasks (
    task_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL UNIQUE,
    runner_id TEXT NOT NULL REFERENCES runners (runner_id),
    state TEXT NOT NULL CHECK (state IN (
        'QUEUED', 'STARTING', 'RUNNING', 'HELD', 'IDLE', 'SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED')),
    version INTEGER NOT NULL,
    payload BLOB NOT NULL,
    received_wall_ms INTEGER NOT NULL
) STRICT
""",
    """
CREATE INDEX tasks_unfinished ON tasks (runner_id, position)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED')
""",
    """
CREATE TABLE outbox (
    command_id TEXT PRIMARY KEY,
    position INTEGER NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('ACKNOWLEDGE', 'STEER')),
    runner_id TEXT NOT NULL REFERENCES runners (runner_id),
    escalation_id TEXT REFERENCES escalations (escalation_id),
    task_id TEXT NOT NULL,
    payload BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('STORED', 'DELIVERED', 'REFUSED')),
    refusal TEXT CHECK (json_valid(refusal)),
    identity TEXT NOT NULL,
    role TEXT NOT NULL,
    stored_ms INTEGER NOT NULL,
    stored_wall_ms INTEGER NOT NULL,
    traceparent TEXT NOT NULL,
    CHECK ((state = 'REFUSED') = (refusal IS NOT NULL)),
    CHECK (kind = 'STEER' OR escalation_id IS NOT NULL)
) STRICT
""",
    # I3, whatever the code does: one ruling per hold that is not refused.
    """
CREATE UNIQUE INDEX outbox_one_ruling ON outbox (escalation_id)
    WHERE kind = 'STEER' AND escalation_id IS NOT NULL AND state <> 'REFUSED'
""",
    "CREATE INDEX outbox_by_escalation ON outbox (escalation_id, position)",
    "CREATE INDEX outbox_waiting ON outbox (runner_id, position) WHERE state = 'STORED'",
    "CREATE INDEX outbox_finished ON outbox (stored_ms) WHERE state <> 'STORED'",
    """
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
    outcome TEXT NOT NULL CHECK (outcome <> '')
) STRICT
""",
    "CREATE INDEX audit_by_task ON audit (task_id, sequence)",
    "CREATE INDEX audit_by_request ON audit (request_id)",
    """
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'audit entries are only ever added'); END
""",
    """
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'audit entries are only ever added'); END
""",
)


@MIGRATIONS()
def first_tables(db: Database) -> None:
    """Everything the main job needs."""
    for statement in _STATEMENTS:
        db.execute(statement)


_NOTIFICATIONS = (
    """
CREATE TABLE notifications (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    key TEXT NOT NULL,
    escalation_id TEXT NOT NULL REFERENCES escalations (escalation_id),
    kind TEXT NOT NULL CHECK (kind IN ('opened', 'notice', 'approver', 'reminder', 'expired', 'ruled', 'canceled')),
    addressee TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (json_valid(payload)),
    changed_ms INTEGER NOT NULL,
    next_try_ms INTEGER,
    tries INTEGER NOT NULL CHECK (tries >= 0),
    delivered_wall_ms INTEGER,
    failure TEXT NOT NULL,
    UNIQUE (sink, key),
    CHECK (next_try_ms IS NULL OR delivered_wall_ms IS NULL),
    CHECK (next_try_ms IS NOT NULL OR (delivered_wall_ms IS NULL) = (failure <> ''))
) STRICT
""",
    "CREATE INDEX notifications_waiting ON notifications (sink, tries, position) WHERE next_try_ms IS NOT NULL",
    """
CREATE INDEX notifications_in_order ON notifications (escalation_id, sink, position) WHERE next_try_ms IS NOT NULL
""",
    "CREATE INDEX notifications_by_escalation ON notifications (escalation_id, position)",
    "CREATE INDEX notifications_by_age ON notifications (changed_ms)",
)


@MIGRATIONS()
def notifications(db: Database) -> None:
    """What people are told about escalations."""
    for statement in _NOTIFICATIONS:
        db.execute(statement)


_OBSERVATIONS = (
    # Unset in a row from before this migration: its silence counts from the next report.
    "ALTER TABLE tasks ADD COLUMN running_ms INTEGER",
    "ALTER TABLE tasks ADD COLUMN progressed_ms INTEGER",
    "ALTER TABLE tasks ADD COLUMN input_ms INTEGER",
    "ALTER TABLE tasks ADD COLUMN cause_author TEXT CHECK (cause_author IN ('WORKER', 'RUNNER'))",
    "ALTER TABLE tasks ADD COLUMN cause TEXT CHECK ((cause IS NULL) = (cause_author IS NULL))",
)


@MIGRATIONS()
def observations(db: Database) -> None:
    """When the facts of a task last moved, by the supervisor's own steady clock."""
    for statement in _OBSERVATIONS:
        db.execute(statement)


@MIGRATIONS()
def supervision_generations(db: Database) -> None:
    """The highest generation of the right to act that each runner has told."""
    db.execute("ALTER TABLE runners ADD COLUMN supervision_generation_seen INTEGER NOT NULL DEFAULT 0")


_INVENTORY = (
    "ALTER TABLE runners ADD COLUMN build TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE tasks ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0 CHECK (forgotten IN (0, 1))",
    "ALTER TABLE escalations ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0 CHECK (forgotten IN (0, 1))",
    """
CREATE INDEX tasks_inventory ON tasks (runner_id, task_id)
    WHERE state NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED', 'SETTLED') AND NOT forgotten
""",
    "CREATE INDEX escalations_inventory ON escalations (runner_id, task_id) WHERE hold_state = 'OPEN' AND NOT forgotten",
)


@MIGRATIONS()
def inventory(db: Database) -> None:
    """What a runner's inventory is compared with, what its runner forgot, and what code a runner runs."""
    for statement in _INVENTORY:
        db.execute(statement)


_FILINGS = (
    """
CREATE TABLE filings (
    position INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL,
    runner_id TEXT NOT NULL REFERENCES runners (runner_id),
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    claim_generation INTEGER NOT NULL CHECK (claim_generation > 0),
    summary TEXT NOT NULL,
    diagnosis TEXT NOT NULL,
    claimed_wall_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    leader_key TEXT NOT NULL,
    stage TEXT NOT NULL CHECK (stage IN ('OPEN', 'FILED', 'RECORDED', 'LOST')),
    unsure_since_ms INTEGER,
    tries INTEGER NOT NULL CHECK (tries >= 0),
    external_id TEXT NOT NULL,
    url TEXT NOT NULL,
    failure TEXT NOT NULL,
    CHECK (stage NOT IN ('FILED', 'RECORDED') OR external_id <> '')
) STRICT
""",
    "CREATE INDEX filings_due ON filings (due_ms) WHERE stage IN ('OPEN', 'FILED')",
    "CREATE INDEX filings_by_cause ON filings (cause, position) WHERE stage = 'OPEN'",
    "CREATE INDEX filings_by_leader ON filings (leader_key, position)",
    """
CREATE TABLE incidents (
    position INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    resolved INTEGER NOT NULL CHECK (resolved IN (0, 1)),
    payload BLOB NOT NULL
) STRICT
""",
    "CREATE INDEX incidents_by_task ON incidents (task_id, position)",
    # Whether the task was given up, and is not filed as that.
    "ALTER TABLE tasks ADD COLUMN unfiled INTEGER NOT NULL DEFAULT 0 CHECK (unfiled IN (0, 1))",
    "CREATE INDEX tasks_unfiled ON tasks (runner_id, position) WHERE unfiled = 1",
)


@MIGRATIONS()
def filings(db: Database) -> None:
    """Incidents: those that this supervisor has claimed and files, and what the runners say of all."""
    for statement in _FILINGS:
        db.execute(statement)


_RETENTION = (
    # Unset in a row from before this migration, which counts as old.
    "ALTER TABLE incidents ADD COLUMN resolved_ms INTEGER",
    "CREATE INDEX incidents_by_age ON incidents (resolved_ms) WHERE resolved = 1",
    "CREATE INDEX filings_by_age ON filings (due_ms) WHERE stage IN ('RECORDED', 'LOST')",
)


@MIGRATIONS()
def retention_of_incidents(db: Database) -> None:
    """Since when an incident is resolved, so that it can be forgotten, and its filing with it."""
    for statement in _RETENTION:
        db.execute(statement)


_TRACES = (
    "ALTER TABLE notifications ADD COLUMN traceparent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE filings ADD COLUMN traceparent TEXT NOT NULL DEFAULT ''",
)


@MIGRATIONS()
def traces(db: Database) -> None:
    """The traces of what people are told, and of what is filed."""
    for statement in _TRACES:
        db.execute(statement)
