"""WriteTraceService: who writes to this service's store, and how fast. Both services serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from google.protobuf.duration_pb2 import Duration

from lanewarden.errors import invalid
from lanewarden.ledger import ENTITIES_MAX, WINDOWS_SECONDS, Finding, WriteLedger, WriteRate, rates_of
from lanewarden.ledger.windows import MINUTE_MS
from lanewarden.paging import page_size
from lanewarden.server import Call
from lanewarden.stamps import duration, timestamp
from lanewarden.store import Store, minutes
from lanewarden.v1 import write_trace_service_pb2 as pb

WINDOW_MS_DEFAULT: Final = 10_000
INTERVAL_MS_DEFAULT: Final = 1_000
INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 60_000


class WriteTraceHandlers:
    """Answers from the ledger in memory, and for more than five minutes from what is stored of it; writes nothing."""

    def __init__(self, store: Store, ledger: WriteLedger) -> None:
        self._store = store
        self._ledger = ledger

    async def GetWriteRates(self, request: pb.GetWriteRatesRequest, call: Call) -> pb.GetWriteRatesResponse:
        """Row changes over a window that ends now, busiest first."""
        seconds = _window_seconds(request.window if request.HasField("window") else duration(WINDOW_MS_DEFAULT))
        return pb.GetWriteRatesResponse(
            rates=self._rates(seconds, request.entity_id, page_size(request.rates_max)),
            window=duration(seconds * 1000),
            unattributed_rows=self._store.unattributed_rows(),
        )

    async def WatchWriteRates(
        self, request: pb.WatchWriteRatesRequest, call: Call
    ) -> AsyncIterator[pb.WatchWriteRatesResponse]:
        """The same at every interval."""
        seconds = _window_seconds(request.window if request.HasField("window") else duration(WINDOW_MS_DEFAULT))
        interval_ms = request.interval.ToMilliseconds() if request.HasField("interval") else INTERVAL_MS_DEFAULT
        if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
            raise invalid(("interval", "from 100 ms to 1 minute"))
        while True:
            yield pb.WatchWriteRatesResponse(
                rates=self._rates(seconds, request.entity_id, page_size(request.rates_max)),
                window=duration(seconds * 1000),
                unattributed_rows=self._store.unattributed_rows(),
            )
            await self._ledger.clock.sleep(interval_ms / 1000)

    async def ListEmitters(self, request: pb.ListEmittersRequest, call: Call) -> pb.ListEmittersResponse:
        """Every emitter that has written since the service started, busiest first."""
        totals = sorted(self._ledger.emitters().items(), key=lambda item: (-item[1], item[0]))
        return pb.ListEmittersResponse(
            emitters=[pb.EmitterTotal(emitter=emitter, rows=rows) for emitter, rows in totals]
        )

    async def ListFindings(self, request: pb.ListFindingsRequest, call: Call) -> pb.ListFindingsResponse:
        """What is wrong with how this service writes, and what was lately."""
        wall_ms = self._ledger.clock.wall_ms()
        return pb.ListFindingsResponse(
            findings=[
                _finding(each, since_ms=wall_ms - began_ms, ended_ms=None if over_ms is None else wall_ms - over_ms)
                for each, began_ms, over_ms in self._ledger.findings()
                if not request.entity_id or each.entity_id == request.entity_id
            ]
        )

    def _rates(self, seconds: int, entity_id: str, rates_max: int) -> list[pb.WriteRate]:
        in_memory = seconds in WINDOWS_SECONDS
        found = self._ledger.rates(seconds, entity_id) if in_memory else self._stored(seconds, entity_id)
        return [_rate(each) for each in found[:rates_max]]

    def _stored(self, seconds: int, entity_id: str) -> list[WriteRate]:
        """What is stored of the minutes of a window, and what is not stored yet."""
        now_minute = self._ledger.clock.wall_ms() // MINUTE_MS
        after_minute = now_minute - seconds // 60
        total = partial(minutes.total, after_minute=after_minute, rows_max=ENTITIES_MAX, entity_id=entity_id)
        latest = self._ledger.since_taken()
        if entity_id:
            latest = Counter({key: rows for key, rows in latest.items() if key[1] == entity_id})
        return rates_of(self._store.read(total) + latest, seconds, ENTITIES_MAX)


def _window_seconds(asked: Duration) -> int:
    """The window that is answered with: one that is kept in memory, or whole minutes."""
    asked_ms = asked.ToMilliseconds()
    if not 0 < asked_ms <= minutes.MINUTES_KEPT * MINUTE_MS:
        raise invalid(("window", "longer than 0 and at most 24 hours"))
    kept = next((seconds for seconds in WINDOWS_SECONDS if seconds * 1000 >= asked_ms), None)
    return kept or -(-asked_ms // MINUTE_MS) * 60


def _rate(rate: WriteRate) -> pb.WriteRate:
    return pb.WriteRate(
        entity_kind=rate.entity_kind,
        entity_id=rate.entity_id,
        emitter=rate.emitter,
        origin=rate.origin,
        rows=rate.rows,
        rows_per_second=rate.rows_per_second,
    )


def _finding(finding: Finding, *, since_ms: int, ended_ms: int | None) -> pb.Finding:
    return pb.Finding(
        kind=f"FINDING_KIND_{finding.kind.value}",
        entity_kind=finding.entity_kind,
        entity_id=finding.entity_id,
        emitters=[
            pb.EmitterShare(emitter=each.emitter, origin=each.origin, share=each.share) for each in finding.shares
        ],
        rows_per_second=finding.rows_per_second,
        since=timestamp(since_ms),
        ended_at=timestamp(ended_ms),
        entities=finding.entities,
        versions=finding.versions,
        held=duration(finding.held_ms) if finding.held_ms else None,
    )
