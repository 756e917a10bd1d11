"""What each attribute of a span means; which spans have it is in their own catalogue."""

from __future__ import annotations

from typing import Final

SPAN_ATTRIBUTES: Final = {
    "rpc.system.name": "`grpc`",
    "rpc.method": "the call, as `package.Service/Method`",
    "rpc.response.status_code": "the name of its gRPC status code",
    "server.address": "whom a call was made to, as it was configured",
    "error.type": "what went wrong, as the name of a reason or of an exception; not set where a refusal is an answer",
    "lanewarden.reason": "why it was refused; the reasons are those of the contract",
    "lanewarden.emitter": "the code site that writes",
    "lanewarden.origin": "the emitter at the far end of the RPC that caused it",
    "lanewarden.entity.kind": "what a unit of work is about",
    "lanewarden.task.id": "the task",
    "lanewarden.epoch": "its epoch",
    "lanewarden.attempt": "its attempt",
    "lanewarden.lane": "its lane",
    "lanewarden.escalation.id": "the escalation",
    "lanewarden.runner.id": "the runner",
    "lanewarden.incident.id": "the key of the incident",
    "lanewarden.generation": "the generation of the right to act that was quoted, or of a lease",
    "lanewarden.rows": "row changes",
    "lanewarden.units": "units of work of one commit",
    "lanewarden.waited_seconds": "for how long a unit waited for others, and for the commit",
    "lanewarden.held_seconds": "for how long it had the store to itself",
    "lanewarden.waited_for": "the emitter that had the store for most of a long wait",
    "lanewarden.finding.kind": "the storm that it belongs to, as `lanewarden findings` lists it",
    "lanewarden.from": "the state before",
    "lanewarden.to": "the state after",
    "lanewarden.cause": "what moved the task: an event of its table of states",
    "lanewarden.message.kind": "`RULING`, `INSTRUCTION` or `INPUT`",
    "lanewarden.kind": "of a signal: what was asked for",
    "lanewarden.directive": "what the worker was told to do",
    "lanewarden.outcome": "what came of it",
    "lanewarden.state": "what the writer came to",
    "lanewarden.marks": "changes that one report tells",
    "lanewarden.action": "what supervision does: wake, relaunch, settle, claim",
    "lanewarden.sink": "where people are told",
    "lanewarden.notification.kind": "of what they are told: `opened`, `reminder`, …",
    "lanewarden.tries": "how often it was tried before",
}
