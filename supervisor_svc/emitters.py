"""Every code site of the supervisor that writes, by name."""

from __future__ import annotations

from typing import Final

from lanewarden.store import Emitter

START: Final = Emitter("supervisor.start")
GRANT: Final = Emitter("supervisor.lease.grant")
EXPIRE: Final = Emitter("supervisor.lease.expire")
RESUMED: Final = Emitter("supervisor.lease.resumed")
SUPERVISION: Final = Emitter("supervisor.lease.supervision")
ESCALATE: Final = Emitter("supervisor.intake.escalate")
RECONCILE: Final = Emitter("supervisor.intake.reconcile")
REPORT: Final = Emitter("supervisor.intake.report")
ACK: Final = Emitter("supervisor.command.acknowledge")
STEER: Final = Emitter("supervisor.command.steer")
DELIVER: Final = Emitter("supervisor.command.deliver")
ROUTE: Final = Emitter("supervisor.command.route")
FORWARD: Final = Emitter("supervisor.command.forward")
NOTIFY: Final = Emitter("supervisor.notify")
PRUNE: Final = Emitter("supervisor.prune")
WAKE: Final = Emitter("supervisor.action.wake")
RELAUNCH: Final = Emitter("supervisor.action.relaunch")
SETTLE: Final = Emitter("supervisor.action.settle")
CLAIM: Final = Emitter("supervisor.incident.claim")
FILE: Final = Emitter("supervisor.incident.file")
