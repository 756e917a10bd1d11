"""The demo, act by act."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from lanewarden.cli import views
from lanewarden.cli.connect import operator, pages
from lanewarden.cli.exits import Exit
from lanewarden.cli.follow import TERMINAL, command
from lanewarden.cli.insight import audit_of_runner, audit_of_supervisor, merged
from lanewarden.cli.settings import search_path
from lanewarden.cli.state import StateDir
from lanewarden.cli.terminal import lines, one_line
from lanewarden.cli.writes import ledgers
from lanewarden.demo import orders, stage
from lanewarden.v1 import escalation_pb2, task_pb2, write_trace_service_pb2
from lanewarden.v1 import operator_service_pb2 as pb
from lanewarden.worker_messages import enum_word

POLL_SECONDS: Final = 0.1
TASK_SECONDS_MAX: Final = 60.0
EMITTERS_SHOWN: Final = 5


class Play:
    """One performance in ``state``. ``auto``: rule by itself; ``chaos``: kill a service before and after the ruling."""

    def __init__(self, state: StateDir, *, auto: bool, chaos: bool) -> None:
        self._state = state
        self._auto = auto
        self._chaos = chaos
        self._database = state.path / "orders.sqlite3"
        self._began = time.monotonic()
        self._operator: Any = None

    def run(self) -> int:
        """Play all acts; the exit code is that of `lanewarden run`."""
        self._scene("A shop's database, and a migration that cannot be undone")
        orders.create(self._database)
        self._show_tables()
        self._say("starting a supervisor and a lane runner of its own")
        with stage.services(self._state):
            endpoints = self._state.endpoints()
            self._say(f"up: supervisor at {endpoints.supervisor}, runner at {endpoints.runner}")
            with operator(self._state) as self._operator:
                ended = self._play()
        self._scene("The data")
        self._show_tables()
        succeeded = ended.state == task_pb2.TASK_STATE_SUCCEEDED
        self._say("all of it is gone now: services, worker, directory" if succeeded else "it did not succeed")
        return Exit.DONE if succeeded else Exit.FAILED

    def _play(self) -> task_pb2.Task:
        task_id = self._submit()
        hold = self._until_held(task_id)
        self._show_hold(hold)
        if self._chaos:
            self._kill_supervisor(hold)
        self._rule(hold)
        if self._chaos:
            pid = stage.kill(self._state, "runner")
            self._say(f"kill -9 of the runner (pid {pid}) right after the ruling; its worker goes on")
        ended = self._until(task_id, lambda task: task.state in TERMINAL)
        self._say(f"the task {enum_word(task_pb2.TaskState, ended.state)}: {ended.summary}")
        self._show_records(hold, task_id)
        return ended

    def _submit(self) -> str:
        worker = [sys.executable, "-m", "lanewarden.demo.migration_worker", str(self._database)]
        self._scene("The migration runs as a task in a lane")
        self._shell("run --name migrate-orders -- python -m lanewarden.demo.migration_worker orders.sqlite3")
        spec = task_pb2.TaskSpec(
            name="migrate-orders",
            argv=worker,
            cwd=str(self._state.path),
            # So that it finds this very package, installed or not.
            env={"PATH": search_path(), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        request = pb.OperatorServiceSubmitTaskRequest(request_id=str(uuid4()), spec=spec)
        response: pb.OperatorServiceSubmitTaskResponse = stage.patiently(self._operator.SubmitTask, request)
        return response.task.task_id

    def _until_held(self, task_id: str) -> escalation_pb2.Escalation:
        held = self._until(task_id, lambda task: bool(task.open_holds) or task.state in TERMINAL)
        if not held.open_holds:
            raise click.ClickException(f"the task ended before it asked: {held.summary}")
        return self._escalation(held.open_holds[0])

    def _until(self, task_id: str, wanted: Callable[[task_pb2.Task], bool]) -> task_pb2.Task:
        """Show progress until the task is as wanted."""
        request = pb.OperatorServiceGetTaskRequest(task_id=task_id)
        deadline = time.monotonic() + TASK_SECONDS_MAX
        shown = ""
        while time.monotonic() < deadline:
            task: task_pb2.Task = stage.patiently(self._operator.GetTask, request).task
            news = f"{views.state(task)}, attempt {task.attempt}" + (
                f": {task.progress_note}" if task.progress_note else ""
            )
            if news != shown and not wanted(task):
                shown = news
                self._say(news)
            if wanted(task):
                return task
            time.sleep(POLL_SECONDS)
        raise click.ClickException(f"task {task_id} did not get there within {TASK_SECONDS_MAX:g} s")

    def _escalation(self, escalation_id: str) -> escalation_pb2.Escalation:
        """The hold as the supervisor shows it, which hears of it a moment after the runner has stored it."""
        request = pb.ListEscalationsRequest(states=escalation_pb2.HoldState.keys()[1:])
        deadline = time.monotonic() + stage.PATIENCE_SECONDS
        while time.monotonic() < deadline:
            listed = stage.patiently(pages, self._operator.ListEscalations, request, "escalations")
            for each in listed:
                if each.escalation_id == escalation_id:
                    found: escalation_pb2.Escalation = each
                    return found
            time.sleep(POLL_SECONDS)
        raise click.ClickException(f"the supervisor has not heard of {escalation_id}")

    def _show_hold(self, hold: escalation_pb2.Escalation) -> None:
        self._scene("It has a question, and is held until somebody answers")
        self._shell("inbox")
        views.print_table(views.ESCALATION_HEADERS, views.escalation_rows([hold]), empty="")
        click.echo()
        for line in lines(hold.question):
            click.echo(f"    {line}")
        for number, option in enumerate(hold.options, 1):
            click.echo(f"      {number}  {option.key:<8} {option.text}")
        click.echo()

    def _kill_supervisor(self, hold: escalation_pb2.Escalation) -> None:
        pid = stage.kill(self._state, "supervisor")
        self._say(f"kill -9 of the supervisor (pid {pid}) while the question is open; it is being started again")
        after = self._escalation(hold.escalation_id)
        same = after.opened_at == hold.opened_at and after.hold_state == escalation_pb2.HOLD_STATE_OPEN
        self._say(f"the hold is {'still there, same id, same age' if same else 'NOT what it was'}")

    def _rule(self, hold: escalation_pb2.Escalation) -> None:
        self._say("to rule from another terminal:")
        for line in views.how_to_rule(hold, command(self._state)):
            click.echo(f"    {line}")
        choice = "archive" if self._auto else self._ask_person(hold)
        if not choice:
            self._say("ruled from another terminal")
            return
        self._shell(f"rule {hold.escalation_id} choose --option {choice} -m 'as agreed'")
        ruling = escalation_pb2.Ruling(
            escalation_id=hold.escalation_id, decision="DECISION_CHOOSE", option_key=choice, instructions="as agreed"
        )
        request = pb.OperatorServiceSteerRequest(request_id=str(uuid4()), ruling=ruling)
        stage.patiently(self._operator.Steer, request)

    def _ask_person(self, hold: escalation_pb2.Escalation) -> str:
        """The option chosen here, or nothing once somebody has ruled elsewhere."""
        keys = [option.key for option in hold.options]
        choices = {str(number): key for number, key in enumerate(keys, 1)} | {key: key for key in keys}
        prompt = f"your ruling [{'/'.join(str(n) for n in range(1, len(keys) + 1))}]: "
        click.echo(prompt, nl=False)
        reading = True
        while self._escalation(hold.escalation_id).hold_state == escalation_pb2.HOLD_STATE_OPEN:
            if not reading:
                time.sleep(POLL_SECONDS)
            elif select.select([sys.stdin], [], [], POLL_SECONDS)[0]:
                typed = sys.stdin.readline()
                if typed.strip() in choices:
                    return choices[typed.strip()]
                reading = bool(typed)  # at the end of the input only another terminal can rule
                click.echo(prompt if reading else "(no terminal here; waiting for another)", nl=not reading)
        click.echo()
        return ""

    def _show_records(self, hold: escalation_pb2.Escalation, task_id: str) -> None:
        self._scene("Who ruled")
        self._shell("show migrate-orders")
        views.print_fields(views.escalation_fields(self._escalation(hold.escalation_id)))
        click.echo()
        self._shell("audit --task migrate-orders")
        audits = [stage.patiently(ask, self._state, task_id) for ask in (audit_of_supervisor, audit_of_runner)]
        entries = merged(*audits)
        views.print_table(views.AUDIT_HEADERS, views.audit_rows(entries), empty="no entries")
        self._scene("Who wrote to the stores")
        self._shell("writes --window 5m; lanewarden emitters")
        self._show_writes()

    def _show_writes(self) -> None:
        request = write_trace_service_pb2.GetWriteRatesRequest()
        request.window.FromSeconds(300)
        rows = []
        with ledgers(self._state) as stubs:
            for name, ledger in stubs.items():
                rates = stage.patiently(ledger.GetWriteRates, request)
                totals = stage.patiently(ledger.ListEmitters, write_trace_service_pb2.ListEmittersRequest()).emitters
                per_second: dict[str, float] = {}
                for rate in rates.rates:
                    per_second[rate.emitter] = per_second.get(rate.emitter, 0.0) + rate.rows_per_second
                rows += [
                    [name, each.emitter, str(each.rows), f"{per_second.get(each.emitter, 0.0):.2f}"]
                    for each in totals[:EMITTERS_SHOWN]
                ]
                rows.append([name, "(unattributed)", str(rates.unattributed_rows), ""])
        views.print_table(("SERVICE", "EMITTER", "ROWS", "ROWS/S OVER 5 MIN"), rows, empty="")

    def _show_tables(self) -> None:
        rows = [[name, str(count), columns] for name, count, columns in orders.tables(self._database)]
        views.print_table(("TABLE", "ROWS", "COLUMNS"), rows, empty="")

    def _scene(self, title: str) -> None:
        click.echo()
        click.secho(f"── {title} ", bold=True)

    def _shell(self, words: str) -> None:
        click.secho(f"$ lanewarden {words}", fg="cyan")

    def _say(self, text: str) -> None:
        click.echo(f"{click.style(f'{time.monotonic() - self._began:5.1f} s', dim=True)}  {one_line(text)}")
