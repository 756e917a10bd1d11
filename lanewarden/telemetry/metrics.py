"""The metrics that both services have: of the store, its ledger and the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lanewarden.ledger import FindingKind, WriteLedger
from lanewarden.loop_lag import LoopLag
from lanewarden.store import Store
from lanewarden.telemetry import Read, Telemetry
from lanewarden.telemetry import metric_names as names


def observe(telemetry: Telemetry, store: Store, ledger: WriteLedger, readings: Mapping[str, Read]) -> None:
    """Have what is written read whenever metrics are sent, and what ``readings`` name."""
    unattributed = lambda: [(abs(store.unattributed_rows()), ())]  # noqa: E731 - too few is as wrong as too many
    own: dict[str, Read] = {
        names.STORE_ROWS.name: lambda: ((rows, series) for series, rows in ledger.totals().items()),
        names.STORE_ROWS_UNATTRIBUTED.name: unattributed,
        names.STORE_THROTTLED.name: lambda: ((units, (emitter,)) for emitter, units in ledger.throttled().items()),
        names.FINDINGS_OPEN.name: lambda: _findings(ledger),
    }
    for name, read in {**own, **readings}.items():
        telemetry.observe(name, read)


def read_loop(lag: LoopLag) -> Mapping[str, Read]:
    """How far the event loop is behind."""
    return {names.LOOP_LAG.name: lambda: [(lag.ms() / 1000, ())]}


def states(counts: Mapping[str, int], attribute: names.Attribute) -> list[tuple[int, tuple[str]]]:
    """Counts by the values of an attribute, also of those that there are none of."""
    return [(counts.get(value, 0), (value,)) for value in attribute.values]


def _findings(ledger: WriteLedger) -> Iterable[tuple[int, tuple[str]]]:
    found = ledger.open_findings()
    return states({kind.value: found[kind] for kind in FindingKind}, names.FINDINGS_OPEN.attributes[0])
