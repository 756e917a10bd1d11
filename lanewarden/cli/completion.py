"""``completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lanewarden.cli.exits import Exit


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a shell completion script.

    For bash: lanewarden completion bash > ~/.local/share/bash-completion/completions/lanewarden
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells offered above"
    click.echo(kind(context.find_root().command, {}, "lanewarden", "_LANEWARDEN_COMPLETE").source())
    return Exit.DONE
