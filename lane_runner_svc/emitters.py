"""Every code site of the lane runner that writes, by name."""

from __future__ import annotations

from typing import Final

from lanewarden.store import Emitter

START: Final = Emitter("lane_runner.start")
SUBMIT: Final = Emitter("lane_runner.task.submit")
CANCEL: Final = Emitter("lane_runner.task.cancel")
PAUSE: Final = Emitter("lane_runner.task.pause")
RESUME: Final = Emitter("lane_runner.task.resume")
GATE: Final = Emitter("lane_runner.gate.record")
CLAIM: Final = Emitter("lane_runner.attempt.claim")
LAUNCH: Final = Emitter("lane_runner.attempt.launch")
EXIT: Final = Emitter("lane_runner.attempt.exit")
ESCALATE: Final = Emitter("lane_runner.worker.escalate")
PROGRESS: Final = Emitter("lane_runner.worker.progress")
COMPLETE: Final = Emitter("lane_runner.worker.complete")
TAKEN: Final = Emitter("lane_runner.worker.acknowledge")
EVIDENCE: Final = Emitter("lane_runner.worker.evidence")
ACK: Final = Emitter("lane_runner.hold.acknowledge")
RULE: Final = Emitter("lane_runner.hold.rule")
INSTRUCT: Final = Emitter("lane_runner.message.instruct")
INPUT: Final = Emitter("lane_runner.message.input")
DELIVER: Final = Emitter("lane_runner.message.deliver")
LIMIT: Final = Emitter("lane_runner.task.limit")
REPORT: Final = Emitter("lane_runner.outbox.report")
RECONCILE: Final = Emitter("lane_runner.outbox.reconcile")
TIMER: Final = Emitter("lane_runner.hold.timer")
EXTEND: Final = Emitter("lane_runner.hold.extend")
RETRY: Final = Emitter("lane_runner.task.retry")
REOPEN: Final = Emitter("lane_runner.task.reopen")
TAKE_OVER: Final = Emitter("lane_runner.task.take_over")
SUPERVISION: Final = Emitter("lane_runner.supervision.change")
HOOK: Final = Emitter("lane_runner.task.on_success")
AUDIT: Final = Emitter("lane_runner.audit.refusal")
PRUNE: Final = Emitter("lane_runner.request_log.prune")
