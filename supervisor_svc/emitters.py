"""Every code site of the supervisor that writes, by name. Throttled are those whose caller can be told to wait."""

from __future__ import annotations

from typing import Final

from lanewarden.store import Emitter

START: Final = Emitter("supervisor.start", exempt=True)
GRANT: Final = Emitter("supervisor.lease.grant", exempt=True)
EXPIRE: Final = Emitter("supervisor.lease.expire", exempt=True)
RESUMED: Final = Emitter("supervisor.lease.resumed", exempt=True)
SUPERVISION: Final = Emitter("supervisor.lease.supervision", exempt=True)
ESCALATE: Final = Emitter("supervisor.intake.escalate", exempt=True)
RECONCILE: Final = Emitter("supervisor.intake.reconcile", exempt=True)
REPORT: Final = Emitter("supervisor.intake.report", exempt=True)
ACK: Final = Emitter("supervisor.command.acknowledge", exempt=True)
STEER: Final = Emitter("supervisor.command.steer", exempt=True)
DELIVER: Final = Emitter("supervisor.command.deliver", exempt=True)
ROUTE: Final = Emitter("supervisor.command.route")
FORWARD: Final = Emitter("supervisor.command.forward", exempt=True)
"""What a runner has answered. It has its own ceiling, and what it has done must be in the audit."""
NOTIFY: Final = Emitter("supervisor.notify", exempt=True)
ROLL_UP: Final = Emitter("supervisor.ledger.roll_up", exempt=True)
PRUNE: Final = Emitter("supervisor.prune", exempt=True)
WAKE: Final = Emitter("supervisor.action.wake", exempt=True)
RELAUNCH: Final = Emitter("supervisor.action.relaunch", exempt=True)
SETTLE: Final = Emitter("supervisor.action.settle", exempt=True)
CLAIM: Final = Emitter("supervisor.incident.claim", exempt=True)
FILE: Final = Emitter("supervisor.incident.file", exempt=True)
