"""Runs a module as the main program of a process that ends when its parent does.

Started as ``python -P tied.py PARENT_PID MODULE ARG...``; with 0 for the parent it is tied to none. By its path and
with ``-P``, because the directory that `up` is called from must not be searched for modules; the package's own root is
added at the end of the path instead.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Become the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if parent:
        # SIGTERM, not SIGKILL: a service whose `up` was killed stops as cleanly as it would have been told to.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the line above
            return
    root = str(Path(__file__).resolve().parents[2])
    if root not in sys.path:
        sys.path.append(root)
    sys.argv[:] = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
