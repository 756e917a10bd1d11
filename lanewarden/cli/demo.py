"""``demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from lanewarden.cli.state import StateDir


@click.command()
@click.option("--auto", is_flag=True, help="Rule by itself, after showing the question.")
@click.option(
    "--chaos", is_flag=True, help="Kill the supervisor while the task is held, and the runner after the ruling."
)
def demo(auto: bool, chaos: bool) -> int:
    """Watch a real migration ask, wait for your ruling and go on.

    In a directory and with services of its own, on free ports; nothing is left of it.
    """
    from lanewarden.demo.play import Play

    with tempfile.TemporaryDirectory(prefix="lanewarden-demo-") as directory:
        return Play(StateDir(Path(directory)), auto=auto, chaos=chaos).run()
