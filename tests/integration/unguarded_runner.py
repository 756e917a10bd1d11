"""A runner as :mod:`tests.integration.moved_service` runs it, without one of the guards of automatic actions.

Run with the name of the mutant, and the arguments of ``moved_service``.
"""

from __future__ import annotations

import sys

import pytest

from lane_runner_svc.core import incidents as core_incidents
from tests.integration import moved_service
from tests.unit import test_action_mutants as mutants


def everybody_has_the_claim(patch: pytest.MonkeyPatch) -> None:
    """Whose it is is not compared."""
    patch.setattr(core_incidents, "claim", lambda incident, holder: incident)


MUTANTS = {
    "no fence": (mutants.no_fence, mutants.claims_are_not_fenced, mutants.repeats_are_not_fenced),
    "no compare": (everybody_has_the_claim,),
}

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        for mutate in MUTANTS[sys.argv.pop(1)]:
            mutate(patch)
        sys.exit(moved_service.main())
