"""Progress of real programs that report none: what they write, to their output or to files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lane_runner_svc.bootstrap import DATABASE
from lane_runner_svc.loop.files import fingerprint
from lanewarden.v1 import operator_service_pb2 as pb
from tests.integration.pair import Pair, eventually

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
