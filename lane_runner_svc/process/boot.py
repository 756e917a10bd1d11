"""Starts one of this folder's programs, ``shim`` or ``spawn_loop``, in an interpreter of its own.

Run as ``python -I -S boot.py PROGRAM ...``. The folder becomes the package ``process`` without its
``__init__``, which would bring asyncio and dataclasses into a shim that lives as long as its worker.
"""
# ruff: noqa: PTH100, PTH120 - pathlib would be a fifth of the shim's start

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    package = type(sys)("process")
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    sys.modules["process"] = package
    __import__(f"process.{sys.argv[1]}", fromlist=["main"]).main()
