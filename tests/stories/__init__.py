"""Scenarios as stories; see :mod:`tests.stories.stage`."""

import pytest

for _name in ("gates", "lives", "programs", "rulings", "stage", "waiting"):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")
