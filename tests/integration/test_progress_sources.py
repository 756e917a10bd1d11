"""Progress of real programs that report none: what they write, to their output or to files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import supervisor_svc.bootstrap
from lane_runner_svc.bootstrap import DATABASE
from lane_runner_svc.loop import files
from lane_runner_svc.loop.files import fingerprint
from lanewarden.cli.state import StateDir
from lanewarden.clock import SystemClock
from lanewarden.ledger import WriteLedger
from lanewarden.store import StateDirectory, Store
from lanewarden.v1 import operator_service_pb2 as pb
from tests.integration.pair import Pair, eventually
from tests.ledger_checks import MIGRATIONS, STORM, note

PRINTS = "echo one; echo two; until test -e go; do sleep 0.05; done; echo three; printf unfinished; exec sleep 600"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path / "s") as found:
        yield found


def wait_for(pair: Pair, task_id: str, progress: int) -> None:
    """Until the supervisor knows of exactly so many steps."""
    request = pb.OperatorServiceGetTaskRequest(task_id=task_id)
    eventually(lambda: pair.operator.GetTask(request).task.progress == progress, f"{progress} steps")


def looked_at(pair: Pair, task_id: str) -> bool:
    """Whether the runner has stored a first reading."""
    sql = "SELECT 1 FROM attempts WHERE sensed IS NOT NULL AND task_id = ?"
    with closing(sqlite3.connect(f"file:{pair.directory / 'runner' / DATABASE}?mode=ro", uri=True)) as database:
        return database.execute(sql, (task_id,)).fetchone() is not None


def test_s10_output_and_files_are_progress_of_programs_that_report_none(pair: Pair, tmp_path: Path) -> None:
    """Complete lines, and looks that find another file, each once; the runner is killed in between, and what was written
    while it was away counts.
    """
    (tmp_path / "old.out").write_text("from before")
    prints = pair.submit("sh", "-c", PRINTS, cwd=str(tmp_path), progress_from={"output_lines": True})
    writes = pair.submit("sleep", "600", cwd=str(tmp_path), progress_from={"files": "*.out"})
    wait_for(pair, prints, 2)
    eventually(lambda: looked_at(pair, writes), "what was there before is known")
    (tmp_path / "new.out").write_text("1")
    wait_for(pair, writes, 1)
    pair.runner.kill()
    (tmp_path / "go").touch()
    (tmp_path / "old.out").write_text("more than before")
    pair.runner.start()
    wait_for(pair, prints, 3)
    wait_for(pair, writes, 2)


async def test_a_fingerprint_is_another_exactly_when_a_file_that_matches_is(tmp_path: Path) -> None:
    """Size, time, coming and going; not what does not match, and not the order in which a directory is read."""
    (tmp_path / "deep" / "down").mkdir(parents=True)
    looks = [await fingerprint(str(tmp_path), "**/*.out")]
    for change in (
        lambda: (tmp_path / "deep" / "down" / "a.out").write_text("1"),
        lambda: (tmp_path / "deep" / "down" / "a.out").write_text("12"),
        lambda: (tmp_path / "b.out").touch(),
        lambda: (tmp_path / "b.out").unlink(),
    ):
        change()
        looks.append(await fingerprint(str(tmp_path), "**/*.out"))
    assert len(set(looks[:4])) == 4
    assert looks[4] == looks[2], "as it was before"
    (tmp_path / "c.txt").touch()
    (tmp_path / "gone.out").symlink_to(tmp_path / "nowhere")
    assert await fingerprint(str(tmp_path), "**/*.out") == looks[4], "what cannot be looked at is not there"
    assert await fingerprint(str(tmp_path / "none"), "*.out") == looks[0]


async def reactions(directory: Path, store: Store, change: Callable[[], object]) -> int:
    """How often a watcher of all files that writes whenever it sees another reading does so, in ten looks after a change."""
    wrote, told = 0, await fingerprint(str(directory), "**/*")
    change()
    for _ in range(10):
        if (seen := await fingerprint(str(directory), "**/*")) != told:
            wrote, told = wrote + 1, seen
            store.write_now(note, emitter=STORM)
    return wrote


@pytest.mark.parametrize("name", files.DATABASES)
async def test_w06_a_service_that_watches_its_own_files_reacts_once_to_one_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A pattern that leads through the state of a service: a file that somebody else changes counts once, what the service
    has written because of it never. A build that does not tell them apart reacts to itself for ever.
    """
    own = tmp_path / "state" / "service"
    with (
        StateDirectory.acquire(own),
        closing(
            Store.open(own / name, migrations=MIGRATIONS, ledger=WriteLedger(SystemClock()), threaded=False)
        ) as store,
    ):
        assert await reactions(tmp_path, store, lambda: store.write_now(note, emitter=STORM)) == 0
        assert await reactions(tmp_path, store, (tmp_path / "work.out").touch) == 1
        monkeypatch.setattr(files, "_is_own", lambda *_: False)
        assert await reactions(tmp_path, store, (tmp_path / "more.out").touch) == 10


async def test_w06_what_up_writes_for_its_services_is_not_looked_at(tmp_path: Path) -> None:
    """Its logs and what people are told, beside its lock; a worker's files below the same directory are."""
    state = StateDir(tmp_path)
    state.logs.mkdir()
    (tmp_path / "work" / "logs").mkdir(parents=True)
    (tmp_path / "work" / "logs" / "a.out").touch()
    seen = await fingerprint(str(tmp_path), "**/*.*")
    state.lock_file.touch()
    for path in (state.logs / "up.log", tmp_path / "notifications.jsonl"):
        path.write_text("something happened")
    assert await fingerprint(str(tmp_path), "**/*.*") == seen
    (tmp_path / "work" / "logs" / "a.out").write_text("more")
    assert await fingerprint(str(tmp_path), "**/*.*") != seen


def test_the_names_of_state_are_those_that_are_used(tmp_path: Path) -> None:
    """What is left out of a look is what the services and `up` write."""
    assert files.DATABASES == (DATABASE, supervisor_svc.bootstrap.DATABASE)
    assert StateDir(tmp_path).lock_file.name == files.UP_LOCK
