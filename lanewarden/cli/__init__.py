"""The command line, ``lanewarden``.

``lanewarden worker ...`` runs inside workers, perhaps once a second, so it is dispatched before anything else of the
command line is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; :mod:`lanewarden.cli.exits` says what each means.

    Without ``argv`` it is the program that was started, and ends it.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] != ["worker"]:
        from lanewarden.cli import app

        return app.main(words)
    from lanewarden.cli import worker_verbs

    code = worker_verbs.main(words[1:])
    if argv is None:
        _leave(code)
    return code


def _leave(code: int) -> None:
    """End the process without taking its modules apart, which takes as long as the call did."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # whoever read it has gone
            code = code or 1
    os._exit(code)
