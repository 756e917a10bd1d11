"""Ten thousand open holds on one runner: to list them, to fire the few timers that are due, and to start over them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lanewarden.auth import Credentials, Role
from lanewarden.client_sync import connect
from lanewarden.errors import Reason
from lanewarden.store import Emitter
from lanewarden.v1 import lane_runner_service_pb2 as pb
from tests.bench.figures import Figure
from tests.integration.pair import LANE_RUNNER, Service, eventually
from tests.ports import free_port
from tests.runner_kit import LANES, RunnerKit, make_runner

HOLDS: Final = 10_000
FEW: Final = 100
DUE: Final = 10
ROUNDS: Final = 9
PAGE: Final = 1_000
QUESTION: Final = "May the migration of the orders table go on? " + "It has stopped at a row that two rules fit. " * 20
MAKER: Final = Emitter("tests.bench")


async def run(rounds: int | None, directory: Path) -> list[Figure]:
    """Timers on the store itself; listing and starting at a real process."""
    few, many = hold(directory / "few", FEW), hold(directory / "many", HOLDS)
    try:
        fired = _fire(few, many, rounds or ROUNDS)
    finally:
        few.close()
        many.close()
    return [fired, *_serve(directory / "many", rounds or 3)]


def hold(directory: Path, number: int) -> RunnerKit:
    """A runner with that many tasks, each held by a question whose worker has left; its reminders are not due yet."""
    directory.mkdir()
    kit = make_runner(directory)
    kit.clock.advance(time.time() - kit.clock.steady_ms() / 1000)  # steady time begins as wall time, as on a real start
    for _ in range(number):
        kit.submit()
        launch = kit.claim()
        assert launch is not None
        kit.launched(launch.ref)
        kit.escalate(launch.ref, QUESTION)
        kit.exited(launch.ref)
    return kit


def _fire(few: RunnerKit, many: RunnerKit, rounds: int) -> Figure:
    """Ten timers that are due among all; the same ten among a hundred."""
    pairs = [(_fire_ms(many), _fire_ms(few)) for _ in range(rounds + 1)][1:]  # the first one warms up
    return Figure(
        bench="many_holds",
        what=f"fire {DUE} due timers among {HOLDS:,} open holds",
        measured=statistics.median(own for own, _ in pairs),
        unit="ms",
        reference=f"the same among {FEW}",
        reference_measured=statistics.median(other for _, other in pairs),
        ratio=statistics.median(own / other for own, other in pairs),
        target="≤ 1.5",
    )


def _fire_ms(kit: RunnerKit) -> float:
    now_ms = kit.clock.steady_ms()
    due = "UPDATE holds SET timer_ms = ?, next_reminder_ms = ? WHERE position % (SELECT count(*) / ? FROM holds) = 0"
    kit.runner.store.write_now(lambda uow: uow.execute(due, (now_ms, now_ms, DUE)), emitter=MAKER)
    start = time.perf_counter()
    fired = kit.fire()
    seconds = time.perf_counter() - start
    assert fired == DUE, fired
    return seconds * 1000


def _serve(directory: Path, rounds: int) -> Iterator[Figure]:
    """Starts of a real runner on that store, and listings of everything by it."""
    ready, first, growth, seconds = list[float](), list[float](), list[float](), list[float]()
    for _ in range(rounds):
        with _runner(directory) as (runner, stub, took):
            ready.append(took)
            list(_pages(stub, pages_max=1))
            first.append(_peak_mib(runner.pid))
            start = time.perf_counter()
            listed = sum(len(page.holds) for page in _pages(stub))
            seconds.append(time.perf_counter() - start)
            assert listed == HOLDS, listed
            growth.append(_peak_mib(runner.pid) - first[-1])
    what = f"{HOLDS:,} open holds"
    median = statistics.median
    yield Figure(bench="many_holds", what=f"{what}: start to ready", measured=median(ready), unit="s", target="< 5 s")
    yield Figure(
        bench="many_holds",
        what=f"{what}: ListHolds, every page, adds to the peak of memory",
        measured=median(growth),
        unit="MiB",
        reference="the peak after one page",
        reference_measured=median(first),
        target="< 32 MiB",
    )
    yield Figure(bench="many_holds", what=f"{what}: ListHolds, every page", measured=median(seconds), unit="s")


@contextmanager
def _runner(directory: Path) -> Iterator[tuple[Service, Any, float]]:
    port = free_port()
    service = Service(
        "lane_runner_svc",
        *("--state-dir", str(directory), "--listen-port", str(port), "--supervisor", f"127.0.0.1:{free_port()}"),
        *[word for lane in LANES for word in ("--lanes", lane)],
    )
    start = time.perf_counter()
    service.start()
    seconds = time.perf_counter() - start
    token = Credentials.load(directory / "credentials").tokens[Role.OPERATOR]
    connection = connect(f"127.0.0.1:{port}", token=token, unreachable=Reason.RUNNER_UNREACHABLE)
    try:
        yield service, connection.stub(LANE_RUNNER), seconds
    finally:
        connection.close()
        service.stop()


def _pages(stub: Any, pages_max: int = HOLDS) -> Iterator[pb.ListHoldsResponse]:
    token = ""
    for _ in range(pages_max):
        page = eventually(
            lambda token=token: stub.ListHolds(pb.ListHoldsRequest(page_size=PAGE, page_token=token)), "page"
        )
        yield page
        if not (token := page.next_page_token):
            return


def _peak_mib(pid: int) -> float:
    """The most memory that the process has ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel says nothing of VmHWM")
