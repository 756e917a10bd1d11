"""A service's own ``main``, in whose store one unit of work stays for as long as a file is there.

Run with the directory of that file, the service's package, which is the file's name, and the service's own arguments.
"""

from __future__ import annotations

import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from lanewarden.store import Emitter, Entity, Store, UnitOfWork

HOLDER = Emitter("tests.planted.holder")
HELD_FOR = Entity("task", "planted")
ORIGIN = "tests.planted.origin"
LOOK_SECONDS = 0.02
_open = Store.open


def hold_while(store: Store, there: Path) -> None:
    """Have a unit of work that ends when the file is gone, whenever it is there."""

    def stay(uow: UnitOfWork) -> None:
        uow.query("SELECT 1")
        while there.exists():
            time.sleep(LOOK_SECONDS)

    while True:
        if there.exists():
            store.write_now(stay, emitter=HOLDER, entity=HELD_FOR, origin=ORIGIN)
        time.sleep(LOOK_SECONDS)


def main() -> int:
    """Run the service until it is told to stop."""
    directory, package, *arguments = sys.argv[1:]

    def opened(*args: Any, **options: Any) -> Store:
        store = _open(*args, **options)
        threading.Thread(target=hold_while, args=(store, Path(directory) / package), daemon=True).start()
        return store

    service = import_module(f"{package}.__main__")
    with mock.patch.object(Store, "open", opened):
        return int(service.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
