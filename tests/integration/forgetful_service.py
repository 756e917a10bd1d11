"""A service as :mod:`tests.integration.moved_service` runs it, with a bug: a ruling is answered a second before it is
committed.
"""

from __future__ import annotations

import sys

import pytest

from lane_runner_svc import emitters
from tests.integration import moved_service
from tests.sim.planted import answer_before_the_commit

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        answer_before_the_commit(patch, emitters.RULE, seconds=1.0)
        sys.exit(moved_service.main())
