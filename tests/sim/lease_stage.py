"""A stage with two supervisors, and words for what happens to leases on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lane_runner_svc import emitters
from lane_runner_svc.core.states import State
from lane_runner_svc.store import supervision
from lane_runner_svc.store.supervision import Supervision
from lane_runner_svc.work.supervision import fence
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.v1 import task_pb2
from supervisor_svc.config import SupervisorConfig
from supervisor_svc.core.leases import LeaseState
from supervisor_svc.store import runners
from supervisor_svc.store.runners import RunnerRow
from supervisor_svc.work.presence import Presence
from tests.sim.nodes import Node
from tests.sim.sim_stage import Death, SimStage, _Supervisor
from tests.sim.virtual import VirtualClock, VirtualLoop
from tests.stories.programs import Worker

TTL_SECONDS = 10.0
GRACE_SECONDS = 5.0
RENEW_SECONDS = 3.0


class LeaseStage(SimStage):
    """The runner turns to ``supervisor`` (alpha) first, then to ``beta``; their leases have the default times."""

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None = None, seed: int = 0) -> None:
        super().__init__(directory, loop, death, seed)
        self.played.points["beta"] = []
        self.beta = _Supervisor(
            directory / "beta.sqlite3",
            self.people,
            network=self.network,
            clock=VirtualClock(loop),
            random=self.stream("beta"),
            on_commit=self._look,
        )
        self.beta.name, self.beta.config = "beta", SupervisorConfig(supervisor_id="beta")
        self.supervisor.config = SupervisorConfig(supervisor_id="alpha")
        self.beta.played, self.beta.restart_seconds = self.played, (0.05, 1.0)
        self.nodes["beta"] = self.beta
        self.runner.supervisors = ("supervisor", "beta")
        self.others: list[Node] = []

    def close(self) -> None:
        """Let go of the files."""
        super().close()
        for node in self.others:
            if node.store is not None:
                node.store.close()

    # What happens

    def cut(self, *names: str) -> None:
        """Nothing passes between the runner and these supervisors, until :meth:`heal`."""
        self.network.faults.cut |= {frozenset(("runner", name)) for name in names}

    def heal(self) -> None:
        """The network is well."""
        self.network.faults.stop()

    async def act(self, generation: int) -> None:
        """What every automatic action begins with, at the runner, in a unit of work."""
        assert self.runner.parts is not None
        await self.runner.parts.runner.do(lambda session: fence(session, generation), emitter=emitters.SUPERVISION)

    async def submit_at_runner(self, name: str, program: Callable[[Worker], Awaitable[int]], **spec: Any) -> str:
        """Submit a task at the runner itself, whoever supervises it."""
        self._programs[name] = program
        asked = {"name": name, "argv": ["true"], "cwd": str(self.directory), **spec}
        response = await self.ask("SubmitTask", runner=True, spec=task_pb2.TaskSpec(**asked))
        return str(response.task.task_id)

    async def state_is(self, task_id: str, state: State) -> None:
        """Wait until the task is in a state."""
        await self.until(lambda: self.task(task_id).state is state, f"the task is {state.name}")

    async def supervised(self, by: str) -> Supervision:
        """Wait until one supervisor supervises the runner, and knows under which generation."""

        def found() -> Supervision | None:
            now = self.supervision()
            return now if now.live and now.supervisor_id == by and self.right(by) == now.generation else None

        return await self.until(found, f"{by} supervises the runner and knows it")  # type: ignore[return-value]

    async def throughout(self, seconds: float, true: Callable[[], bool], what: str) -> None:
        """Let time pass, in which something must be so all the time."""
        end = self.loop.time() + seconds
        while self.loop.time() < end:
            assert true(), f"at {self.loop.time():.2f} s it is not so that {what}"
            await self.sleep(0.25)

    # What there is to see

    def supervision(self) -> Supervision:
        """What the runner has stored."""
        return self.files["runner"].read(supervision.load)

    def node(self, name: str) -> _Supervisor:
        """The node of a supervisor, by its id."""
        return self.beta if name == "beta" else self.supervisor

    def presence(self, name: str) -> Presence:
        """What a supervisor has in memory."""
        parts = self.node(name).parts
        assert parts is not None
        return parts.supervisor.presence

    def right(self, name: str) -> int:
        """Under which generation a supervisor takes itself to be allowed to act at the runner; 0 while it is down."""
        return self.presence(name).supervision_generation("runner") if self.node(name).up else 0

    def lease(self, name: str) -> LeaseState:
        """What a supervisor says of the runner."""
        return self.presence(name).state("runner")

    def row(self, name: str) -> RunnerRow:
        """The runner as a supervisor has stored it."""
        store = self.node(name).store
        assert store is not None
        found = store.read(lambda reader: runners.find(reader, "runner"))
        assert found is not None
        return found

    def supervisions(self) -> list[str]:
        """The runner's audit of who supervised it."""
        return [entry for entry in self.audit("") if "Supervise" in entry]

    def calls(self, what: str) -> int:
        """How often something was called."""
        return sum(1 for event in self.events if event.endswith(f" {what}"))

    async def shown(self) -> pb.Runner:
        """The runner as alpha shows it."""
        (runner,) = (await self.ask("ListRunners")).runners
        return runner  # type: ignore[no-any-return]

    def views_agree(self, name: str) -> bool:
        """Whether a supervisor has every task and escalation in the version that the runner has."""
        store = self.node(name).store
        assert store is not None

        def rows(read: Callable[[Any], Any], *sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for each in sql for row in read(lambda reader, each=each: reader.query(each))]

        there = rows(
            store.read,
            "SELECT task_id, state, version FROM tasks ORDER BY 1",
            "SELECT escalation_id, hold_state FROM escalations ORDER BY 1",
        )
        here = rows(
            self.files["runner"].read,
            "SELECT task_id, state, version FROM tasks ORDER BY 1",
            "SELECT escalation_id, state FROM holds ORDER BY 1",
            "SELECT sequence FROM outbox",
        )
        return here == there
