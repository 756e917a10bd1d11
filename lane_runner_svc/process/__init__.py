"""Worker processes: launched under shims, ended as whole trees, found again after a crash."""

from __future__ import annotations

from .host import ProcessHost
from .model import (
    AttemptKey,
    ExitKind,
    ExitRecord,
    LaunchFailed,
    LaunchSpec,
    OutputTotals,
    WorkerIdentity,
)
from .spawner import Spawner

__all__ = [
    "AttemptKey",
    "ExitKind",
    "ExitRecord",
    "LaunchFailed",
    "LaunchSpec",
    "OutputTotals",
    "ProcessHost",
    "Spawner",
    "WorkerIdentity",
]
