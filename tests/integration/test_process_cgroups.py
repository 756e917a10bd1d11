"""A cgroup for each worker where the machine lets us make one, and how it is found out whether it does.

What needs a delegated cgroup v2 is skipped where there is none, and says so.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lane_runner_svc.process import ExitKind
from lane_runner_svc.process.cgroup import Cgroup, path_of
from lanewarden import cgroups
from tests.integration.process_kit import Bystander, Rig, kill_all, shim_pid, until
from tests.integration.test_process_stop import TREES

WIPED = "env -i setsid sleep 1000 & echo $!; exec sleep 1000"
"""A worker with a descendant that has no mark of ours in its environment, and has left its group."""


@pytest.fixture
def parent() -> Path:
    found = cgroups.find()
    if found.path is None:
        pytest.skip(f"could not check cgroups of workers on this machine: {found.text}")
    return found.path


@pytest.fixture
async def rig(tmp_path: Path, parent: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path, cgroup_parent=parent)
    yield made
    await made.close()
    assert not of(made, parent)


def of(rig: Rig, parent: Path) -> list[Path]:
    """The cgroups that exist of the rig's attempts."""
    launches = [path.read_text() for path in rig.attempts_dir.glob("*/*/worker.json")]
    return [path for path in parent.glob("lanewarden-*") if any(path.name in launch for launch in launches)]


def members(cgroup: Path) -> set[int]:
    return {int(word) for word in (cgroup / "cgroup.procs").read_text().split()}


async def test_a_worker_and_its_descendants_are_in_a_cgroup_of_their_own(rig: Rig, parent: Path) -> None:
    """From before its first instruction: whoever it starts is in there too, its shim is not; at its end it is removed,
    with what the worker made below it.
    """
    script = (
        "setsid sleep 1000 & "
        f"mkdir {parent}/$(sed -n 's|^0::.*/||p' /proc/self/cgroup)/below && echo up; exec sleep 1000"
    )
    identity = await rig.host.launch(rig.spec("sh", "-c", script))
    await until(lambda: "up" in rig.log())
    (cgroup,) = of(rig, parent)
    await until(lambda: len(members(cgroup)) == 2 and members(cgroup) == set(rig.alive()))
    assert identity.pid in members(cgroup)
    await rig.host.stop(rig.key(), grace_seconds=5)
    await rig.end()
    assert not cgroup.exists()


def test_one_write_ends_everybody_in_a_cgroup_and_nobody_else(parent: Path) -> None:
    """Whoever was taken in is dead, a process that was not is not, and the cgroup can be removed."""
    inside, outside = Bystander(), Bystander()
    path = path_of(str(parent), "f" * 31)
    cgroup = Cgroup(path)
    cgroup.take(inside.pid)
    assert (cgroup.has(inside.pid), cgroup.has(outside.pid)) == (True, False)
    assert cgroup.is_populated()
    cgroup.kill()
    assert inside.end() == -signal.SIGKILL
    assert not cgroup.is_populated()
    assert outside.untouched()
    outside.end()
    cgroup.remove()
    assert not Path(path).exists()


@pytest.mark.parametrize("name", ["forks on in a session of its own", "sixty sessions"])
async def test_p04_a_cgroup_ends_a_tree(rig: Rig, name: str) -> None:
    """Whatever the tree does, the end is told when nothing of it is left, as without a cgroup."""
    await rig.host.launch(rig.spec(*TREES[name]))
    await until(lambda: "up" in rig.log())
    await rig.host.stop(rig.key(), grace_seconds=0)
    record = await rig.end()
    assert (record.kind, record.signal) == (ExitKind.SIGNALED, signal.SIGKILL)
    assert rig.alive() == []


@pytest.mark.parametrize("with_cgroup", [True, False])
async def test_what_a_lost_shim_and_spawner_left_is_known_by_its_cgroup(
    tmp_path: Path, parent: Path, with_cgroup: bool
) -> None:
    """Shim and spawner killed: a descendant that carries no mark is still ours by its cgroup, and ended. The control:
    without one it is nobody's, and is left alone rather than guessed at.
    """
    rig = Rig(tmp_path, cgroup_parent=parent if with_cgroup else None)
    await rig.host.launch(rig.spec("sh", "-c", WIPED))
    await until(lambda: len(rig.log().split()) == 1)
    orphan = int(rig.log())
    await until(lambda: Path(f"/proc/{orphan}/cmdline").read_bytes() == b"sleep\x001000\0")
    os.kill(rig.spawner.pid or 0, signal.SIGKILL)
    await until(lambda: rig.spawner.pid is None)
    os.kill(shim_pid(rig.directory()), signal.SIGKILL)
    record = await rig.end()
    assert record.kind is ExitKind.SHIM_LOST
    if with_cgroup:
        await until(lambda: not Path(f"/proc/{orphan}").exists())
        assert record.leftovers_killed >= 1
    else:
        assert Path(f"/proc/{orphan}").exists()
        kill_all([orphan])
    await rig.close()
    assert not of(rig, parent)


async def test_p03_cgroup_of_another_launch(rig: Rig, parent: Path) -> None:
    """A stranger in a cgroup whose name only begins like ours, and one in ours of another launch, get no signal."""
    await rig.host.launch(rig.spec("sh", "-c", "echo up; exec sleep 1000"))
    (ours,) = of(rig, parent)
    other = parent / f"{ours.name}0"
    other.mkdir()
    stranger = Bystander()
    try:
        (other / "cgroup.procs").write_text(str(stranger.pid))
        os.kill(shim_pid(rig.directory()), signal.SIGKILL)
        await rig.end()
        assert rig.alive() == []
        assert stranger.untouched()
    finally:
        stranger.end()
        other.rmdir()


async def test_a_cgroup_that_cannot_be_made_costs_nothing(tmp_path: Path) -> None:
    """The place is gone, or full, since it was found: the worker runs and is ended as where there is none."""
    rig = Rig(tmp_path, cgroup_parent=tmp_path / "gone")
    await rig.host.launch(rig.spec(*TREES["setsid grandchild"]))
    await until(lambda: "up" in rig.log())
    await rig.host.stop(rig.key(), grace_seconds=0)
    assert (await rig.end()).signal == signal.SIGKILL
    await rig.close()
    other = Rig(tmp_path / "other", cgroup_parent=tmp_path / "gone")
    await other.host.launch(other.spec("sleep", "1000"))
    os.kill(shim_pid(other.directory()), signal.SIGKILL)
    assert (await other.end()).kind is ExitKind.SHIM_LOST
    await other.close()


# Finding out. The directories here are made up: they show how what the kernel says is read, not that it says so. What a
# systemd that delegates does cannot be checked here at all, for want of one.

MOUNT = "40 31 0:38 {root} {place} rw,relatime - cgroup2 cgroup2 rw"
OTHERS = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"


def made_up(tmp_path: Path, membership: str, root: str = "/") -> tuple[Path, Path]:
    """A /proc/self and the place of a mount that it names."""
    process, place = tmp_path / "self", tmp_path / "cgroup"
    process.mkdir()
    place.mkdir()
    (process / "cgroup").write_text(f"1:cpu:/x\n{membership}\n")
    (process / "mountinfo").write_text(f"{OTHERS}\n{MOUNT.format(root=root, place=place)}\n")
    return process, place


@pytest.mark.parametrize(
    ("membership", "root", "below"),
    [
        ("0::/", "/", "."),
        ("0::/a/b", "/", "a/b"),
        ("0::/a/b", "/a", "b"),
        ("0::/a/b", "/c", None),
        ("0::/../b", "/", None),
        ("2:pids:/a", "/", None),
    ],
)
def test_our_own_cgroup_is_where_its_mount_shows_it(
    tmp_path: Path, membership: str, root: str, below: str | None
) -> None:
    """On a machine of its own, in a container, and where the mount or the namespace does not show it."""
    process, place = made_up(tmp_path, membership, root)
    assert cgroups.own_directory(process) == (None if below is None else place / below)


def test_what_is_not_there_or_not_ours_is_not_used(tmp_path: Path) -> None:
    """No /proc, no cgroup v2, a systemd that did not delegate, a kernel that cannot kill: no path, and the reason."""
    nowhere = tmp_path / "nowhere"
    assert cgroups.find(nowhere, nowhere).path is None
    process, place = made_up(tmp_path, "0::/")
    systemd = cgroups.find(process, systemd=tmp_path)
    assert (systemd.path, "Delegate=yes" in systemd.text) == (None, True)
    unwritable = cgroups.find(process, nowhere)
    assert (unwritable.path, unwritable.text) == (None, f"{place} is not ours to write")
    (place / "cgroup.procs").touch()
    old = cgroups.find(process, nowhere)
    assert (old.path, old.text) == (None, "cgroup.kill is missing; it needs Linux 5.14")
    assert [path.name for path in place.iterdir()] == ["cgroup.procs"]
