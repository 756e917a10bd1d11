"""Compares what this runner has with what its supervisor knows, page by page, and has the difference reported again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from lane_runner_svc import emitters
from lane_runner_svc.core.budget import backoff_ms
from lane_runner_svc.runner import Runner
from lane_runner_svc.store import inventory
from lane_runner_svc.store.inventory import Page
from lane_runner_svc.work.reconcile import Missing, mark_again
from lanewarden.client import Stub
from lanewarden.errors import Code, Reason, Refusal
from lanewarden.v1 import supervisor_service_pb2 as pb

log = logging.getLogger(__name__)

ITEMS_MAX: Final = 1_000
FORGOTTEN_MAX: Final = 1_000
MARKED_AT_ONCE_MAX: Final = 100
CALL_SECONDS: Final = 5.0
PAUSE_MS_MAX: Final = 5_000
LEASE_GONE: Final = frozenset({Reason.LEASE_UNKNOWN, Reason.LEASE_EXPIRED})
_PASSES: Final = frozenset({Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED})


async def reconcile(runner: Runner, supervisor: Stub, *, incarnation: str, generation: int) -> None:
    """Compare everything once under one grant; returns when the supervisor has been asked about every unfinished task.

    What prevents it for a while is waited out. A supervisor that cannot compare, such as an older one, is left alone: what
    changes is reported all the same.

    Raises:
        Refusal: LEASE_UNKNOWN or LEASE_EXPIRED when the grant is over.
    """
    failures = 0
    while True:
        try:
            return await _compare(runner, supervisor, incarnation, generation)
        except Refusal as refusal:
            if refusal.reason in LEASE_GONE:
                raise
            log.warning("not compared with the supervisor", extra={"reason": refusal.reason.name})
            if refusal.reason.code not in _PASSES:
                return None
        failures += 1
        await runner.clock.sleep(min(backoff_ms(failures, runner.random.random()), PAUSE_MS_MAX) / 1000)


async def _compare(runner: Runner, supervisor: Stub, incarnation: str, generation: int) -> None:
    after = ""
    missing = Missing()
    while True:
        page = runner.read(partial(inventory.page, after=after, rows_max=ITEMS_MAX))
        request = pb.ReconcileRequest(
            runner_id=runner.runner_id,
            incarnation=incarnation,
            generation=generation,
            items=[
                pb.InventoryItem(task_id=item.task_id, version=item.version, open_holds=item.open_holds)
                for item in page.items
            ],
            after_task_id=page.after,
            through_task_id=page.through,
            forgotten_task_ids=missing.task_ids[:FORGOTTEN_MAX],
            forgotten_escalation_ids=missing.escalation_ids[:FORGOTTEN_MAX],
        )
        response = await supervisor.Reconcile(request, timeout_seconds=CALL_SECONDS, emitter=emitters.RECONCILE.name)
        said, missing = missing, await _mark(runner, page, response.findings)
        if missing and missing != said:
            continue  # the supervisor has to be told that they are not here, and compares the same range again
        missing = Missing()
        after = response.through_task_id or page.through
        if not after:
            return


async def _mark(runner: Runner, page: Page, findings: Sequence[pb.InventoryFinding]) -> Missing:
    """Mark what was found, a few tasks at a time, so that no unit of work is long; what of it is not here."""
    missing = Missing()
    for start in range(0, len(findings), MARKED_AT_ONCE_MAX):
        found = {each.task_id: each.open_holds for each in findings[start : start + MARKED_AT_ONCE_MAX]}
        missing += await runner.do(partial(mark_again, page=page, found=found), emitter=emitters.RECONCILE)
    if findings:
        log.warning("the supervisor had another view", extra={"tasks": len(findings), "not_here": bool(missing)})
    return missing
