"""Whether a collector answers: one line when it is lost, and one when it is back, however long it lasts."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

SPANS: Final = "spans"
METRICS: Final = "metrics"


class Contact:
    """What is known of one collector from what it was sent; ``what`` is that, in a word."""

    def __init__(self, endpoint: str, what: str) -> None:
        self._endpoint = endpoint
        self._what = what
        self._lost = False

    def told(self, taken: bool) -> None:
        """Something was sent, and taken or not."""
        if not taken and not self._lost:
            said = f"no collector answers; {self._what} are dropped until one does"
            log.warning(said, extra={"endpoint": self._endpoint})
        if taken and self._lost:
            log.info("the collector is back", extra={"endpoint": self._endpoint})
        self._lost = not taken
