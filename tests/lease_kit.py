"""One runner and its supervisors without a network: the real stores, units of work and handlers, clocks that are moved by
hand, and requests and answers that a test carries itself, late, twice or never.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from lane_runner_svc import emitters
from lane_runner_svc.holder import Holder
from lane_runner_svc.store import supervision
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work.supervision import fence
from lanewarden.auth import Identity, Role
from lanewarden.errors import Refusal
from lanewarden.hub import Hub
from lanewarden.ledger import WriteLedger
from lanewarden.server import Call
from lanewarden.store import Store
from lanewarden.v1 import supervisor_service_pb2 as pb
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.loop import sweep as sweeping
from supervisor_svc.rpc.supervisor import SupervisorHandlers
from supervisor_svc.store.schema import MIGRATIONS
from supervisor_svc.supervisor import Supervisor
from supervisor_svc.work.carriage import Carriage
from supervisor_svc.work.courier import Courier
from supervisor_svc.work.presence import Presence
from tests.runner_kit import RunnerKit, finished, make_runner

TIMING = SupervisorConfig().timing
STEP_MS = 1_000
"""How far time passes between two looks; a loop that is this late has not stood still."""
CALL = Call(
    method="", identity=Identity(name="runner-1", role=Role.RUNNER), origin="", traceparent="", deadline_seconds=None
)


class Clock:
    """Steady time that goes forward, and a wall clock that somebody may set."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.wall_offset_ms = 10**12

    def wall_ms(self) -> int:
        """For people."""
        return self.now_ms + self.wall_offset_ms

    def steady_ms(self) -> int:
        """Decides."""
        return self.now_ms

    async def sleep(self, seconds: float) -> None:
        """Nobody sleeps here."""
        raise AssertionError(seconds)


@dataclass(slots=True)
class Sent:
    """A request on its way, and when the runner sent it by its own clock. ``answer`` is what it came to."""

    to: str
    request: Any
    sent_ms: int
    answer: Any = None
    refusal: Refusal | None = None


class Side:
    """A supervisor on its own file."""

    def __init__(self, name: str, path: Path, random: Random) -> None:
        self.name = name
        self.path = path
        self.clock = Clock()
        self._random = random
        self.open()

    def open(self) -> None:
        """A start of it: memory is gone, the file is there."""
        self.store = Store.open(self.path, migrations=MIGRATIONS, ledger=WriteLedger(self.clock), threaded=False)
        self.presence = Presence(TIMING, self.clock)
        self.supervisor = Supervisor(
            supervisor_id=self.name,
            incarnation=_uuid(self._random),
            store=self.store,
            clock=self.clock,
            random=self._random,
            hub=Hub(),
            presence=self.presence,
            connect_runner=_nobody,
        )
        finished(self.supervisor.restore())
        carriage = Carriage(self.supervisor, Courier(self.supervisor, timeout_seconds=1.0))
        self.handlers = SupervisorHandlers(self.supervisor, carriage)

    def restart(self) -> None:
        """Lose everything but the file."""
        self.store.close()
        self.open()

    def sweep(self) -> None:
        """What its loop does when it is due: end what is over, and store the ends."""
        for lease in self.presence.sweep():
            finished(sweeping._end(self.supervisor, lease))
        self.presence.plan_sweep()


class LeaseKit:
    """The runner ``runner-1`` and the supervisors ``names``."""

    def __init__(self, directory: Path, names: tuple[str, ...] = ("alpha",)) -> None:
        self.directory = directory
        self.random = Random(0)
        self.runner: RunnerKit = make_runner(directory)
        self.clock = Clock()
        self._start_runner()
        self.sides = {name: Side(name, directory / f"{name}.sqlite3", self.random) for name in names}

    def _start_runner(self) -> None:
        self.runner.runner.clock = self.clock
        self.incarnation = _uuid(self.random)
        self.holder = Holder(self.runner.runner)
        self.lease_generation = dict.fromkeys(getattr(self, "sides", ()), 0)
        finished(self.holder.begin())

    def restart_runner(self) -> None:
        """Another start of the runner on the same file."""
        self.runner.restart()
        self._start_runner()

    def reopen(self, name: str) -> None:
        """Start the owner of a file that was exchanged while it was closed."""
        if name != "runner":
            self.sides[name].open()
            return
        self.runner = make_runner(self.directory)
        self._start_runner()

    def advance(self, ms: int, *, but: str = "") -> None:
        """Let time pass, for everybody; every loop that is due in it acts in time, but those of one supervisor that stands
        still.
        """
        while ms > 0:
            step = min(ms, STEP_MS)
            ms -= step
            for clock in (self.clock, *(side.clock for side in self.sides.values())):
                clock.now_ms += step
            self.lapse()
            for side in self.sides.values():
                if side.name != but:
                    side.sweep()

    def lapse(self) -> None:
        """What the holder's loop does once the lease has lapsed."""
        lease = self.holder._lease
        if lease is not None and not self.holder.generation:
            finished(self.holder._end(lease))

    # Messages

    def register(self, name: str = "alpha") -> Sent:
        """Ask for a lease."""
        request = pb.RegisterRequest(
            request_id=_uuid(self.random),
            runner_id="runner-1",
            incarnation=self.incarnation,
            address="127.0.0.1:7812",
            store_id=_uuid(Random("store")),
            generation_seen=self.supervision().lease_generation_seen,
        )
        return Sent(to=name, request=request, sent_ms=self.holder._runner.clock.steady_ms())

    def keep_alive(self, name: str = "alpha") -> Sent:
        """Ask for a renewal."""
        request = pb.KeepAliveRequest(
            runner_id="runner-1",
            incarnation=self.incarnation,
            generation=self.lease_generation.get(name, 0) or 1,
            supervision_generation=self.holder.generation,
        )
        return Sent(to=name, request=request, sent_ms=self.holder._runner.clock.steady_ms())

    def arrive(self, sent: Sent) -> Sent:
        """The request reaches the supervisor, which answers."""
        handlers = self.sides[sent.to].handlers
        handler = handlers.Register if isinstance(sent.request, pb.RegisterRequest) else handlers.KeepAlive
        try:
            sent.answer = finished(handler(sent.request, CALL))
        except Refusal as refusal:
            sent.refusal = refusal
        return sent

    def hear(self, sent: Sent) -> None:
        """The answer reaches the runner."""
        if isinstance(sent.answer, pb.RegisterResponse):
            finished(self.holder.grant(sent.answer, sent_ms=sent.sent_ms, address=f"{sent.to}:1"))
            self.lease_generation[sent.to] = sent.answer.generation
        elif sent.answer is not None:
            self.holder.renew(sent.answer, sent_ms=sent.sent_ms)

    def supervise(self, name: str = "alpha") -> int:
        """Register and tell the generation, with nothing lost; the generation."""
        self.hear(self.arrive(self.register(name)))
        self.hear(self.arrive(self.keep_alive(name)))
        return self.holder.generation

    # What there is to see

    def supervision(self) -> Supervision:
        """What the runner has stored."""
        return self.runner.runner.read(supervision.load)

    def right(self, name: str = "alpha") -> int:
        """Under which generation a supervisor takes itself to be allowed to act."""
        return self.sides[name].presence.supervision_generation("runner-1")

    def state(self, name: str = "alpha") -> LeaseState:
        """What a supervisor says of the runner."""
        return self.sides[name].presence.state("runner-1")

    def passes(self, generation: int) -> bool:
        """Whether the runner's fence lets an action of this generation pass."""
        try:
            finished(self.runner.runner.do(lambda session: fence(session, generation), emitter=emitters.SUPERVISION))
        except Refusal:
            return False
        return True

    def close(self) -> None:
        """Close every store."""
        for side in self.sides.values():
            side.store.close()
        self.runner.close()


def _uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _nobody(address: str) -> Any:
    raise AssertionError(f"nobody is called at {address}")
