"""The birth of a worker: fork, tell the disk who it is, and only then let it run.

The forked child waits on a pipe until ``worker.json`` is durable, and ends if the shim does. So a worker that
has run a single instruction can always be found again, and a directory without that file never had one.
"""
# ruff: noqa: PTH110, PTH118 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal

from . import files, kernel
from .cgroup import Cgroup, path_of

_PIPE_BYTES = 256 * 1024


class NotStarted(Exception):  # noqa: N818 - a result for the runner
    """The worker could not be executed: one line for people, and the name of the errno."""

    def __init__(self, cause: str, number: int) -> None:
        super().__init__(cause)
        self.cause = cause
        self.errno = errno.errorcode.get(number, str(number))


class Worker:
    """A worker that runs: its pid, a pidfd, the read end of its output, its cgroup, its identity as JSON fields."""

    def __init__(
        self,
        argv: list[str],
        cwd: str,
        env: dict[str, str],
        *,
        umask: int,
        launch_id: str,
        cgroup_parent: str = "",
    ) -> None:
        """Start it; raises :class:`NotStarted`, or OSError for want of a resource: end then."""
        self.output, output = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a small pipe is only slower
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self.output, False)
        go_read, go_write = os.pipe2(os.O_CLOEXEC)
        result_read, result_write = os.pipe2(os.O_CLOEXEC)
        shim = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_write)
            _become(argv, cwd, env, shim=shim, umask=umask, output=output, go=go_read, result=result_write)
        for fd in (output, go_read, result_write):
            os.close(fd)
        self.pidfd = os.pidfd_open(self.pid)
        self.identity: dict[str, object] = {
            "pid": self.pid,
            "start_ticks": kernel.start_ticks(self.pid),
            "boot_id": kernel.boot_id(),
        }
        path = path_of(cgroup_parent, launch_id)
        found_by = {"launch_id": launch_id, "cgroup": path}
        files.write_durably(files.WORKER, json.dumps(self.identity | found_by).encode())
        self.cgroup = Cgroup(path)
        self.cgroup.take(self.pid)
        os.write(go_write, b"!")
        os.close(go_write)
        result = os.read(result_read, 64).decode()
        os.close(result_read)
        if result:
            os.waitpid(self.pid, 0)
            self.cgroup.remove()
            where, number = result.split(":")
            raise NotStarted(_cause(where, int(number), argv[0], cwd), int(number))

    def exit_status(self) -> tuple[str, int | None, int | None]:
        """Kind, exit code and signal of a worker that has ended; it stays a zombie, and so keeps its pid."""
        found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code == os.CLD_EXITED:
            return "EXITED", found.si_status if found else None, None
        return "SIGNALED", None, found.si_status


def _become(
    argv: list[str],
    cwd: str,
    env: dict[str, str],
    *,
    shim: int,
    umask: int,
    output: int,
    go: int,
    result: int,
) -> None:
    """Turn the forked child into the worker, or say why not on ``result``; never returns."""
    where = "exec"
    try:
        os.setsid()
        kernel.die_with_parent(shim)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) not in {signal.SIG_DFL, None}:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.umask(umask)
        if os.read(go, 1):
            where = "cwd"
            os.chdir(cwd)
            where = "exec"
            # All other descriptors are close-on-exec, the lock among them.
            os.execvpe(argv[0], argv, env)  # noqa: S606 - a shell would be one more thing between us
    except OSError as error:
        os.write(result, f"{where}:{error.errno}".encode())
    finally:
        os._exit(127)


def _cause(where: str, number: int, program: str, cwd: str) -> str:
    """One line that tells a person what to repair."""
    if where == "cwd":
        known = {
            errno.ENOENT: "no such working directory",
            errno.ENOTDIR: "working directory is not a directory",
            errno.EACCES: "no permission to enter working directory",
        }
        return f"{known.get(number, os.strerror(number))}: {cwd}"
    if number == errno.ENOENT and os.path.exists(os.path.join(cwd, program)):
        return f"the interpreter that this program names does not exist: {program}"
    known = {
        errno.ENOENT: "no such program",
        errno.ENOTDIR: "no such program",
        errno.EACCES: "no permission to run",
        errno.ENOEXEC: "not an executable format (a script needs a #! line)",
        errno.E2BIG: "arguments and environment are too long for the kernel",
    }
    return f"{known.get(number, os.strerror(number))}: {program}"
