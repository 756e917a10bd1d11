"""Durable state: one SQLite file per service, written by one thread, every write under its emitter's name."""

from __future__ import annotations

from lanewarden.store.directory import StateDirectory
from lanewarden.store.engine import IntegrityError, Row
from lanewarden.store.faults import SimulatedCrash, StateDirectoryBusy, StoreUnusable
from lanewarden.store.group import Failpoints
from lanewarden.store.names import Emitter, Entity
from lanewarden.store.store import Store
from lanewarden.store.unit import Connection, UnitOfWork

__all__ = [
    "Connection",
    "Emitter",
    "Entity",
    "Failpoints",
    "IntegrityError",
    "Row",
    "SimulatedCrash",
    "StateDirectory",
    "StateDirectoryBusy",
    "Store",
    "StoreUnusable",
    "UnitOfWork",
]
