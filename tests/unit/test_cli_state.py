"""The state directory: one `up`, found by its socket, and where things are."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lanewarden.cli import control, ports
from lanewarden.cli.logs import Position
from lanewarden.cli.pair import choose_endpoints, choose_port
from lanewarden.cli.settings import default_state_dir
from lanewarden.cli.state import Endpoints, NotUp, StateDir
from lanewarden.v1 import lane_runner_service_pb2


def test_where_the_state_directory_is() -> None:
    """The variable, else XDG's, else the home's; a relative XDG path is ignored, as its specification says."""
    assert default_state_dir({"LANEWARDEN_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}) == Path("/a")
    assert default_state_dir({"LANEWARDEN_STATE_DIR": "rel"}) == Path.cwd() / "rel"
    assert default_state_dir({"XDG_STATE_HOME": "/b"}) == Path("/b/lanewarden")
    home = Path.home() / ".local" / "state" / "lanewarden"
    assert default_state_dir({"XDG_STATE_HOME": "b"}) == default_state_dir({}) == home


def test_endpoints_are_read_as_written(tmp_path: Path) -> None:
    """And the file appears whole."""
    state = StateDir(tmp_path)
    with pytest.raises(NotUp):
        state.endpoints()
    endpoints = Endpoints(supervisor="127.0.0.1:1", runner="127.0.0.1:2")
    endpoints.save(state.endpoints_file)
    assert state.endpoints() == endpoints
    assert [each.name for each in tmp_path.iterdir()] == ["endpoints.json"]


def test_p20_a_second_up_is_told_at_once(tmp_path: Path) -> None:
    """The lock is the kernel's: it goes when its holder does, killed or not."""
    state = StateDir(tmp_path / "state")
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom lanewarden.cli import control\n"
        "from lanewarden.cli.state import StateDir\n"
        f"with control.locked(StateDir(Path({str(state.path)!r}))):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(NotUp, match="already up"), control.locked(state):
            pass
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    with control.locked(state):
        assert state.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("length", [10, 200])
def test_asking_works_however_long_the_path_is(tmp_path: Path, length: int) -> None:
    """Also where the socket's own path would not fit into an address; the answer is the line that was sent."""
    state = StateDir(tmp_path / ("d" * length))
    state.path.mkdir()
    assert control.ask(state, "status") is None, "nobody is there"
    with control.listen(state) as listener:
        listener.setblocking(True)

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                assert client.recv(100) == b"status\n"
                client.sendall(b'{"ready": true}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        assert control.ask(state, "status") == {"ready": True}
        thread.join(10)
        assert (state.path / control.SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    assert control.ask(state, "status") is None, "a socket that nobody listens at is nobody"


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """One sentence, not an OSError."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotUp, match="cannot be the state directory"), control.locked(StateDir(tmp_path / "file" / "x")):
        pass


def test_a_port_is_the_one_asked_for_or_any(tmp_path: Path) -> None:
    """A taken one is refused in one sentence that names it."""
    with socket.create_server((ports.HOST, 0)) as other:
        taken = other.getsockname()[1]
        assert not ports.is_free(taken)
        with pytest.raises(NotUp, match=f"{taken} is in use"):
            choose_port(taken)
    assert ports.is_free(taken)
    assert choose_port(taken) == taken
    assert choose_port(0) > 0


def test_a_tail_that_begins_anew_prints_nothing_twice() -> None:
    """Bytes are counted per attempt; a new stream's first bytes are dropped up to what was printed."""

    def piece(attempt: int, data: bytes) -> lane_runner_service_pb2.TailLogResponse:
        return lane_runner_service_pb2.TailLogResponse(attempt=attempt, data=data)

    position = Position()
    assert position.fresh(piece(1, b"abc")) == b"abc"
    assert position.fresh(piece(1, b"de")) == b"de"
    position.rewind()
    assert position.fresh(piece(1, b"abcd")) == b""
    assert position.fresh(piece(1, b"efg")) == b"fg"
    assert position.fresh(piece(2, b"xy")) == b"xy"


def test_any_port_is_the_one_before_if_that_is_free(tmp_path: Path) -> None:
    """What a killed `up` left behind is used once, and taken away."""
    state = StateDir(tmp_path)
    left = Endpoints(supervisor=f"127.0.0.1:{ports.any_free()}", runner="damaged")
    left.save(state.endpoints_file)
    chosen = choose_endpoints(state, supervisor_port=0, runner_port=0)
    assert chosen.supervisor == left.supervisor
    assert chosen.runner.startswith("127.0.0.1:")
    assert not state.endpoints_file.exists()
