"""A worker whose every turn has the same tokens in use; it does what it is told, and leaves what that was on its output.

Run with the tokens and the number of turns. A summary that it makes is a turn as well, and is counted.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from lanewarden.worker import Worker


def main() -> None:
    """Live so many turns."""
    tokens, turns_max = map(int, sys.argv[1:])
    told = Counter[str]()
    with Worker.from_environment() as worker:
        for turn in range(1, turns_max + 1):
            said = worker.next_directive(tokens, turn=turn)
            told[said.kind] += 1
            if said.kind == "compact":
                told["summaries"] += 1
                worker.report_directive(said.directive_id)
            elif said.kind == "rebuild":
                worker.report_directive(said.directive_id, inserted_tokens=len(said.content))
        worker.complete(json.dumps(told, sort_keys=True))


if __name__ == "__main__":
    main()
