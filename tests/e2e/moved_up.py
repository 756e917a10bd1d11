"""``lanewarden up`` whose services run on a clock that the test moves; the file of the clock comes first."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from lanewarden.cli import main
from lanewarden.cli.service import ServiceSpec

if __name__ == "__main__":
    clock, *words = sys.argv[1:]

    def moved(*, module: str, arguments: tuple[str, ...], **facts: Any) -> ServiceSpec:
        """The service by way of the module that moves its clock."""
        return ServiceSpec(module="tests.integration.moved_service", arguments=(clock, module, *arguments), **facts)

    with mock.patch("lanewarden.cli.pair.ServiceSpec", moved):
        sys.exit(main(words))
