"""The tables of one-shot signals, context windows, checkpoints and directives; a step of :mod:`.schema`."""

from __future__ import annotations

from typing import Final

SIGNALS: Final = """
CREATE TABLE signals (
    position INTEGER PRIMARY KEY,
    signal_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('REDUCE_CONTEXT', 'WRAP_UP', 'PAUSE', 'CANCEL', 'STOP')),
    cause TEXT NOT NULL,
    raised_by TEXT NOT NULL,
    raised_role TEXT NOT NULL,
    raised_wall_ms INTEGER NOT NULL,
    discharged_by TEXT,
    discharged_role TEXT,
    discharged_how TEXT,
    discharged_wall_ms INTEGER,
    CHECK ((discharged_how IS NULL) = (discharged_by IS NULL) AND (discharged_how IS NULL) = (discharged_wall_ms IS NULL))
) STRICT;
CREATE UNIQUE INDEX signals_outstanding ON signals (task_id, kind, epoch, attempt) WHERE discharged_how IS NULL;
CREATE INDEX signals_of_task ON signals (task_id, position);
CREATE TRIGGER signals_are_discharged_once BEFORE UPDATE ON signals WHEN old.discharged_how IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a signal is discharged once'); END;
CREATE TRIGGER signals_stay BEFORE DELETE ON signals BEGIN SELECT RAISE(ABORT, 'signals are kept'); END;

CREATE TABLE contexts (
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    measurement_id TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cycle INTEGER NOT NULL,
    consumed INTEGER NOT NULL,
    raised INTEGER NOT NULL CHECK (raised IN (0, 1)),
    tried_tokens INTEGER NOT NULL,
    injected INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    reductions INTEGER NOT NULL,
    wrapped_up INTEGER NOT NULL CHECK (wrapped_up IN (0, 1)),
    boundary_attempt INTEGER NOT NULL,
    boundary_turn INTEGER NOT NULL,
    PRIMARY KEY (task_id, epoch)
) STRICT;
CREATE TRIGGER reductions_rise BEFORE UPDATE OF reductions ON contexts WHEN new.reductions < old.reductions
BEGIN SELECT RAISE(ABORT, 'the budget of an epoch is never refilled'); END;

CREATE TABLE checkpoints (
    position INTEGER PRIMARY KEY,
    checkpoint_id TEXT NOT NULL UNIQUE,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    cycle INTEGER NOT NULL,
    command INTEGER NOT NULL CHECK (command IN (0, 1)),
    tokens INTEGER NOT NULL,
    consumed_before INTEGER NOT NULL,
    started_ms INTEGER NOT NULL,
    started_wall_ms INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('WRITING', 'TIMED_OUT', 'SUCCEEDED', 'FAILED', 'NOT_STARTED', 'SUPERSEDED')),
    failure TEXT CHECK (failure IN ('TRANSIENT', 'AUTH', 'BAD_REQUEST', 'UNCOMMITTED', 'LOST', 'UNKNOWN')),
    detail TEXT NOT NULL,
    content TEXT,
    ended_wall_ms INTEGER,
    UNIQUE (task_id, epoch, number),
    CHECK ((state = 'SUCCEEDED') = (content IS NOT NULL)),
    CHECK ((state = 'FAILED') = (failure IS NOT NULL)),
    CHECK ((state IN ('WRITING', 'TIMED_OUT')) = (ended_wall_ms IS NULL))
) STRICT;
CREATE UNIQUE INDEX checkpoints_in_flight ON checkpoints (task_id) WHERE ended_wall_ms IS NULL;
CREATE TRIGGER checkpoints_end_once BEFORE UPDATE ON checkpoints WHEN old.ended_wall_ms IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a checkpoint that has ended is not changed'); END;

CREATE TABLE directives (
    directive_id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL REFERENCES tasks (task_id),
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('CHECKPOINT', 'REBUILD', 'COMPACT', 'WRAP_UP')),
    cause TEXT NOT NULL,
    checkpoint_id TEXT REFERENCES checkpoints (checkpoint_id),
    given_wall_ms INTEGER NOT NULL,
    outcome TEXT CHECK (outcome IN ('DONE', 'FAILED')),
    detail TEXT,
    inserted_tokens INTEGER,
    reported_wall_ms INTEGER,
    UNIQUE (task_id, epoch, number),
    CHECK ((kind IN ('CHECKPOINT', 'REBUILD')) = (checkpoint_id IS NOT NULL))
) STRICT;
CREATE TRIGGER directives_are_reported_once BEFORE UPDATE ON directives WHEN old.outcome IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'the first report of a directive stands'); END
"""
