"""The write ledger: who writes to what, how fast, and what is wrong with it."""

from __future__ import annotations

from lanewarden.ledger.findings import Finding, FindingKind, Share, Thresholds
from lanewarden.ledger.ledger import ENTITIES_MAX, WINDOWS_SECONDS, WriteLedger, WriteRate, Written, rates_of
from lanewarden.ledger.windows import STEPS
from lanewarden.telemetry.metric_names import OTHER

__all__ = [
    "ENTITIES_MAX",
    "OTHER",
    "STEPS",
    "WINDOWS_SECONDS",
    "Finding",
    "FindingKind",
    "Share",
    "Thresholds",
    "WriteLedger",
    "WriteRate",
    "Written",
    "rates_of",
]
