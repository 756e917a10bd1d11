"""The demo, as people see it, and its worker when it is killed between its steps."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lanewarden.demo import migration_worker, orders
from lanewarden.worker import Ruling


def test_the_demo_survives_its_own_chaos() -> None:
    """Supervisor killed while held, runner killed after the ruling: the migration is done as ruled, within its time."""
    began = time.monotonic()
    command = [sys.executable, "-m", "lanewarden", "demo", "--auto", "--chaos"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 40
    shown = " ".join(done.stdout.split())
    for wanted in (
        "the hold is still there, same id, same age",
        "choose archive",
        "(operator)",
        "orders_customer_name 3000",
        "orders 3000 order_id, item, quantity, price_cents, customer_id",
        "supervisor (unattributed) 0",
        "runner (unattributed) 0",
    ):
        assert wanted in shown, wanted
    assert done.stderr == ""


def test_a_person_rules_in_the_demo_by_number() -> None:
    """A number that is not offered is asked again; 2 drops the column and archives nothing."""
    command = [sys.executable, "-m", "lanewarden", "demo"]
    done = subprocess.run(command, input="9\n2\n", capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("your ruling [1/2/3]") == 2
    tables = done.stdout.rpartition("The data")[2]
    assert "customer_name" not in tables


@pytest.mark.parametrize("choice", ["keep", "drop", "archive"])
def test_h10_the_worker_applies_a_ruling_once(tmp_path: Path, choice: str) -> None:
    """A ruling that comes again, after a crash between acting and acknowledging, changes nothing."""
    path = tmp_path / "orders.sqlite3"
    orders.create(path)
    database = sqlite3.connect(path, isolation_level=None)
    for _ in range(2):
        migration_worker.add_tables(database)
    ruling = Ruling(
        message_id="r1",
        ruling_id="r1",
        escalation_id="e1",
        decision="choose",
        option_key=choice,
        instructions="go",
        ratifies=(),
        ruled_by="ada (operator)",
    )
    migration_worker.apply(database, ruling)
    once = orders.tables(path)
    migration_worker.apply(database, ruling)
    database.close()
    assert orders.tables(path) == once
    columns = {name: listed for name, _, listed in once}
    assert ("customer_name" in columns["orders"]) is (choice == "keep")
    assert ("orders_customer_name" in columns) is (choice == "archive")


def test_the_database_is_the_same_everywhere(tmp_path: Path) -> None:
    """Deterministic, so that the demo's figures can be quoted."""
    for name in ("a", "b"):
        orders.create(tmp_path / name)
    dumps = []
    for name in ("a", "b"):
        database = sqlite3.connect(tmp_path / name)
        dumps.append("\n".join(database.iterdump()))
        database.close()
    assert dumps[0] == dumps[1]
    assert dumps[0].count("INSERT INTO") == orders.ORDERS
