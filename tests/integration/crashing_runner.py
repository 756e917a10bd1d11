"""The lane runner's own ``main``, ended by SIGKILL when its store comes to a chosen point of a chosen emitter's commit.

Run with the point (``before_commit`` or ``after_commit``), the emitter's name, and the runner's own arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from unittest import mock

from lane_runner_svc.__main__ import main
from lanewarden.store import Store

if __name__ == "__main__":
    chosen, emitter, *arguments = sys.argv[1:]

    def crash(point: str, emitters: tuple[str, ...]) -> None:
        if point == chosen and emitter in emitters:
            os.kill(os.getpid(), signal.SIGKILL)

    with mock.patch.object(Store, "open", partial(Store.open, failpoints=crash)):
        sys.exit(main(arguments))
