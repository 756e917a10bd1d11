"""Stages on which supervisors act by themselves and file what they give up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lanewarden.v1 import incident_pb2
from supervisor_svc.sinks.tracker import Filed, FilingFailed, Report
from supervisor_svc.store import filings
from tests.sim.lease_stage import LeaseStage
from tests.sim.sim_stage import Death, SimStage
from tests.sim.virtual import VirtualLoop

ACTIONS = ("WakeTask", "RelaunchTask", "SettleTask")


class SimTracker:
    """A tracker that several supervisors share, outside of every service: it survives them all."""

    name = "tracker"
    lag_seconds = 60.0

    def __init__(self) -> None:
        self.items: list[Report] = []
        self.tries = 0
        self.down = False

    async def find(self, key: str) -> Filed | None:
        self.tries += 1
        if self.down:
            raise FilingFailed("Connection refused")
        for number, report in enumerate(self.items, 1):
            if key in {each.key for each in report.subjects}:
                return Filed(external_id=f"#{number}", url=f"https://tracker/{number}")
        return None

    async def create(self, report: Report) -> Filed:
        self.items.append(report)
        return Filed(external_id=f"#{len(self.items)}", url=f"https://tracker/{len(self.items)}")

    def filed(self) -> list[str]:
        """The key of every subject of every item."""
        return [each.key for report in self.items for each in report.subjects]


class ActStage(SimStage):
    """One supervisor, and a tracker."""

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None, seed: int = 0) -> None:
        super().__init__(directory, loop, death, seed)
        self.tracker = self.supervisor.tracker = SimTracker()

    def done(self, task_id: str) -> list[str]:
        """What supervisors did about the task by themselves, as the runner's audit has it."""
        entries = [entry.split() for entry in self.audit(task_id)]
        return [entry[1].rstrip(":") for entry in entries if entry[-1] == "OK" and entry[1].rstrip(":") in ACTIONS]

    def asked(self, *rpcs: str) -> list[float]:
        """When supervisors asked runners for something by themselves."""
        wanted = tuple(f"-> runner {rpc}" for rpc in rpcs or ACTIONS)
        return [float(event.split()[0]) for event in self.events if event.endswith(wanted)]

    def commits(self) -> list[str]:
        """What either service has committed so far, without the forgetting of old rows and what the ledger says of that."""
        points = [point for points in self.played.points.values() for point in points]
        return [point for point in points if "prune" not in point and "roll_up" not in point]

    async def incidents(self, *, resolved: bool = True) -> Sequence[incident_pb2.Incident]:
        """The incidents as the supervisor lists them, newest first."""
        found: Sequence[incident_pb2.Incident] = (await self.ask("ListIncidents", resolved=resolved)).incidents
        return found

    async def filed(self, number: int, seconds: float = 600.0) -> list[incident_pb2.Incident]:
        """Wait until the runner has so many filed incidents and the supervisor lists them; oldest first."""
        sql = "SELECT 1 FROM incidents WHERE state IN ('FILED', 'RESOLVED')"
        await self.until(lambda: len(self.rows("runner", sql)) == number, f"{number} incidents are filed", seconds)
        await self.agreed()
        return list(reversed(await self.incidents()))


class TwoStage(LeaseStage):
    """Two supervisors, alpha and beta, that share a tracker; a minute without progress is stale."""

    def __init__(self, directory: Path, loop: VirtualLoop, death: Death | None = None, seed: int = 0) -> None:
        super().__init__(directory, loop, death, seed)
        self.tracker = self.supervisor.tracker = self.beta.tracker = SimTracker()
        for node in (self.supervisor, self.beta):
            node.config = replace(node.config, stale_seconds=60, incident_gather_seconds=0)

    def filing(self, name: str, key: str) -> filings.Filing | None:
        """The filing of an incident in a supervisor's own store."""
        store = self.node(name).store
        assert store is not None
        return store.read(lambda reader: filings.find(reader, key))
