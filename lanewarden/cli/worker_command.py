"""``worker`` as seen from the other commands: for when something stands before it on the command line."""

from __future__ import annotations

import click


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def worker(words: tuple[str, ...]) -> int:
    """Ask, wait, report and complete; see `lanewarden worker --help`."""
    from lanewarden.cli import worker_verbs

    return worker_verbs.main(words)
