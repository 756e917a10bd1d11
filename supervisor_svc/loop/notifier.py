"""Tells people: sends what waits for one sink, until the sink has it or its tries are spent."""

from __future__ import annotations

import logging
from typing import Final

from lanewarden.errors import Refusal
from lanewarden.hub import Subscription
from lanewarden.store import Entity
from lanewarden.telemetry import Span, Value, span_names
from lanewarden.waiting import take_within
from supervisor_svc import emitters
from supervisor_svc.core.notify import TRIES_MAX, backoff_seconds
from supervisor_svc.sinks import Sink, SinkFailed
from supervisor_svc.store import notifications
from supervisor_svc.store.notifications import Notification
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.session import Session, told

log = logging.getLogger(__name__)

BATCH_MAX: Final = 100


async def notify(supervisor: Supervisor, sink: Sink) -> None:
    """Serve one sink at its own pace; never returns. A sink that fails is left alone for a while, whatever waits for it."""
    failures = 0
    with supervisor.hub.subscribe(told(sink.name)) as news:
        while True:
            try:
                done = await _send_due(supervisor, sink)
            except Refusal as refusal:  # of our own store; what was sent and could not be recorded is sent again
                log.error("cannot record a notification", extra={"sink": sink.name, "reason": refusal.reason.name})
                done = False
            if done:
                failures = 0
                await _wait(supervisor, sink, news)
            else:
                failures += 1
                await supervisor.clock.sleep(backoff_seconds(failures, supervisor.random.random()))


async def _send_due(supervisor: Supervisor, sink: Sink) -> bool:
    """Send what is due; False as soon as something fails."""
    while batch := _due(supervisor, sink):
        for notification in batch:
            if not await _try(supervisor, sink, notification):
                return False
    return True


def _due(supervisor: Supervisor, sink: Sink) -> list[Notification]:
    now_ms = supervisor.clock.steady_ms()
    return supervisor.read(lambda reader: notifications.due(reader, sink.name, now_ms, BATCH_MAX))


async def _try(supervisor: Supervisor, sink: Sink, notification: Notification) -> bool:
    """Send one notification and record what came of it."""
    about: dict[str, Value] = {
        "sink": sink.name,
        "escalation.id": notification.escalation_id,
        "notification.kind": notification.kind,
        "tries": notification.tries,
    }
    with supervisor.telemetry.span(span_names.NOTIFY, about, continues=notification.traceparent) as span:
        return await _send(supervisor, sink, notification, span)


async def _send(supervisor: Supervisor, sink: Sink, notification: Notification, span: Span) -> bool:
    failure = ""
    try:
        await sink.send(notification)
    except SinkFailed as failed:
        failure = failed.cause
        span.set("reason", "SINK_FAILED")
    tries = notification.tries + 1
    spent = tries >= TRIES_MAX
    delay_ms = round(1000 * backoff_seconds(tries, supervisor.random.random()))

    def record(session: Session) -> None:
        notifications.record(
            session.uow,
            notification,
            failure=f"given up after {tries} tries: {failure}" if failure and spent else failure,
            next_try_ms=session.steady_ms + delay_ms if failure and not spent else None,
            delivered_wall_ms=None if failure else session.wall_ms,
            now_ms=session.steady_ms,
        )

    entity = Entity("escalation", notification.escalation_id)
    await supervisor.do(record, emitter=emitters.NOTIFY, entity=entity)
    if failure:
        facts = {"sink": sink.name, "notification": notification.key, "tries": tries, "cause": failure}
        if spent:
            log.error("a notification was given up", extra=facts)
        else:
            log.warning("a notification has to wait", extra=facts)
    return not failure


async def _wait(supervisor: Supervisor, sink: Sink, news: Subscription) -> None:
    """Return when there may be something to send."""
    next_ms = supervisor.read(lambda reader: notifications.next_due_ms(reader, sink.name))
    if next_ms is None:
        await news.take()
    else:
        await take_within(news, supervisor.clock, (next_ms - supervisor.clock.steady_ms()) / 1000)
