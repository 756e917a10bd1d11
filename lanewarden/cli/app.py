"""The commands by name, imported when they are used, and the one place where a command's failure becomes a line."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from lanewarden.cli import exits
from lanewarden.cli.exits import Exit
from lanewarden.cli.settings import STATE_DIR_VARIABLE, TLS_CA_VARIABLE, default_state_dir, default_tls_ca
from lanewarden.cli.state import NotUp, StateDir
from lanewarden.cli.terminal import complain
from lanewarden.errors import Reason, Refusal
from lanewarden.records import replace


class Row(NamedTuple):
    """A command: where it is, and its line in ``--help``, so that showing help imports nothing."""

    name: str
    where: str
    help: str


SECTIONS: Final[dict[str, tuple[Row, ...]]] = {
    "The services": (
        Row("up", "up:up", "Run both services in the foreground."),
        Row("down", "up:down", "Stop them, workers included."),
        Row("status", "status:status", "Show whether they are up and what they do."),
        Row("doctor", "doctor:doctor", "Check this machine for what Lanewarden needs."),
        Row("demo", "demo:demo", "Watch a real migration ask, wait for your ruling and go on."),
    ),
    "The inbox": (
        Row("inbox", "inbox:inbox", "List the questions that wait for a ruling."),
        Row("show", "inbox:show", "Show one escalation in full."),
        Row("ack", "rule:ack", "Say that a question was received; it stays open."),
        Row("rule", "rule:rule", "Rule on a question, which releases its hold."),
        Row("extend", "rule:extend", "Move the deadline of an open question to DURATION from now."),
        Row("steer", "rule:steer", "Send an instruction to a task; it releases nothing."),
    ),
    "Tasks": (
        Row("run", "run:run", "Run a command as a task and follow it."),
        Row("tasks", "tasks:tasks", "List tasks, newest first."),
        Row("task", "tasks:task", "Show one task in full."),
        Row("logs", "logs:logs", "Print the output of a task."),
        Row("send", "change:send", "Put an input into a task's inbox."),
        Row("cancel", "change:cancel", "End a task; approves nothing."),
        Row("pause", "change:pause", "Launch nothing of a task until it is resumed."),
        Row("resume", "change:resume", "Clear one pause of a task: the operator's, a takeover, or a limit of use."),
        Row("takeover", "lives:takeover", "Become the owner of a task and launch nothing more of it."),
        Row("retry", "lives:retry", "Give a failed task, or its failed on_success command, another try."),
        Row("reopen", "lives:reopen", "Give a task that has ended another life."),
        Row("gate", "change:gate", "Record the review of a gate."),
        Row("check", "change:check", "Say whether a task may complete; for merge scripts."),
    ),
    "Insight": (
        Row("why", "why:why", "Say what the supervisor makes of a task, and why."),
        Row("runners", "leases:runners", "List the lane runners, what they run and how they do."),
        Row("leases", "leases:leases", "List the leases: who holds what, granted by whom."),
        Row("notifications", "insight:notifications", "List what people were told about questions."),
        Row("incidents", "incidents:incidents", "List what was filed about tasks that were given up."),
        Row("incident", "incidents:incident", "Act on an incident: `incident resolve`."),
        Row("audit", "insight:audit", "List who did what."),
        Row("evidence", "evidence:evidence", "List what earlier attempts of a task said too late."),
        Row("checkpoints", "checkpoints:checkpoints", "List the checkpoints of a task's context, or print one."),
        Row("writes", "writes:writes", "Show who writes to the stores, and how fast."),
        Row("emitters", "writes:emitters", "List what each emitter has written since the start."),
        Row("findings", "writes:findings", "List storms of writes, and who causes them."),
        Row("completion", "completion:completion", "Print a shell completion script."),
    ),
    "Inside a worker": (
        Row("worker", "worker_command:worker", "Ask, wait, report and complete; see `lanewarden worker --help`."),
    ),
}
_ROWS: Final = {row.name: row for rows in SECTIONS.values() for row in rows}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = _ROWS.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row.where.partition(":")
        command: click.Command = getattr(import_module(f"lanewarden.cli.{module}"), attribute)
        if row.name != "worker":  # it has arguments of its own
            command.params = [each for each in command.params if each.name not in ("state_dir", "tls_ca")]
            command.params += [_state_dir_option(), _tls_ca_option()]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, rows in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(row.name, row.help) for row in rows])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), meaning) for code, meaning in exits.MEANINGS.items()])


def _state_dir_option() -> click.Option:
    """Accepted before and after the command's name; the latter wins."""

    def keep(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
        del param
        if ctx.obj is None:
            ctx.obj = StateDir(value.absolute() if value else default_state_dir(), default_tls_ca())
        elif value is not None:
            ctx.obj = replace(ctx.obj, path=value.absolute())

    return click.Option(
        ["--state-dir"],
        is_eager=True,  # before --tls-ca, which adds to what this one begins
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        expose_value=False,
        callback=keep,
        help=f"Directory of the services' state (${STATE_DIR_VARIABLE}).",
    )


def _tls_ca_option() -> click.Option:
    """Accepted before and after the command's name; the latter wins."""

    def keep(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
        del param
        if value is not None:
            ctx.obj = replace(ctx.obj, tls_ca=value)

    return click.Option(
        ["--tls-ca"],
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        expose_value=False,
        callback=keep,
        help=f"Call the services with TLS, trusting these certificates (${TLS_CA_VARIABLE}).",
    )


@click.group(
    cls=_Commands,
    params=[_state_dir_option(), _tls_ca_option()],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="lanewarden", message="%(prog)s %(version)s")
@click.pass_context
def root(context: click.Context) -> int:
    """Lanes for long-lived workers whose holds survive everything.

    ESCALATION and TASK are ids, unique beginnings of ids, or names of tasks.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
    return Exit.USAGE


def main(words: Sequence[str]) -> int:
    """Run one command; every failure that is not a defect becomes one line on stderr."""
    try:
        return int(root.main(list(words), prog_name="lanewarden", standalone_mode=False) or Exit.DONE)
    except click.ClickException as mistake:
        complain(_mistake(mistake))
        return Exit.USAGE
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except UnicodeEncodeError:
        complain("lanewarden: an argument is not valid UTF-8")
        return Exit.USAGE
    except Refusal as refusal:
        complain(_refusal(refusal))
        return exits.of_refusal(refusal)
    except NotUp as problem:
        complain(f"lanewarden: {problem}")
        return Exit.NOT_UP
    except BrokenPipeError:
        # Whoever read the output has gone; nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except Exception:  # noqa: BLE001 - the last resort: a defect must not look like a failed task
        traceback.print_exc()
        return Exit.DEFECT


def _mistake(mistake: click.ClickException) -> str:
    said = " ".join(mistake.format_message().split())
    context: Any = getattr(mistake, "ctx", None)
    where = f"; see `{context.command_path} --help`" if context else ""
    return f"lanewarden: {said.rstrip('.')}{where}"


def _refusal(refusal: Refusal) -> str:
    """One line, whatever was refused; beyond the first violation each adds a clause."""
    if refusal.reason is Reason.SUPERVISOR_UNREACHABLE:
        return f"lanewarden: not up: {refusal.message.split(';')[0]}; run `lanewarden up`, or see `lanewarden status`"
    more = "".join(f"; {each.field}: {each.description}" for each in refusal.violations[1:])
    return f"{refusal}{more}"
