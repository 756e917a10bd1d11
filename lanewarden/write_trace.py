"""WriteTraceService: who writes to this service's store, and how fast. Both services serve it."""

from __future__ import annotations

from typing import Final

from lanewarden.ledger import WriteLedger
from lanewarden.paging import page_size
from lanewarden.server import Call
from lanewarden.store import Store
from lanewarden.v1 import write_trace_service_pb2 as pb

WINDOW_SECONDS_DEFAULT: Final = 10
WINDOWS_SECONDS: Final = (1, 10, 300)


class WriteTraceHandlers:
    """Answers from the ledger in memory; writes nothing."""

    def __init__(self, store: Store, ledger: WriteLedger) -> None:
        self._store = store
        self._ledger = ledger

    async def GetWriteRates(self, request: pb.GetWriteRatesRequest, call: Call) -> pb.GetWriteRatesResponse:
        """Row changes over a window that ends now, busiest first."""
        asked = request.window.ToMilliseconds() / 1000 if request.HasField("window") else WINDOW_SECONDS_DEFAULT
        window = next((seconds for seconds in WINDOWS_SECONDS if seconds >= asked), WINDOWS_SECONDS[-1])
        found = [
            rate for rate in self._ledger.rates(window) if not request.entity_id or rate.entity_id == request.entity_id
        ]
        response = pb.GetWriteRatesResponse(unattributed_rows=self._store.unattributed_rows())
        response.window.FromSeconds(window)
        for rate in found[: page_size(request.rates_max)]:
            response.rates.add(
                entity_kind=rate.entity_kind,
                entity_id=rate.entity_id,
                emitter=rate.emitter,
                origin=rate.origin,
                rows=rate.rows,
                rows_per_second=rate.rows_per_second,
            )
        return response

    async def ListEmitters(self, request: pb.ListEmittersRequest, call: Call) -> pb.ListEmittersResponse:
        """Every emitter that has written since the service started, busiest first."""
        totals = sorted(self._ledger.emitters().items(), key=lambda item: (-item[1], item[0]))
        return pb.ListEmittersResponse(
            emitters=[pb.EmitterTotal(emitter=emitter, rows=rows) for emitter, rows in totals]
        )
