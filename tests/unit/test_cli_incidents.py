"""What people see of incidents, and say about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanewarden.cli.exits import Exit
from lanewarden.errors import Reason, refuse
from lanewarden.v1 import incident_pb2, task_pb2
from tests.cli_kit import Desk, desk, pb, task


@pytest.fixture
def at(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Desk]:
    with desk(tmp_path, capfdbinary) as found:
        found.operator.tasks.append(task("tabc1"))
        found.operator.incidents += [
            incident_pb2.Incident(
                key="tabc1/2/settled",
                state=incident_pb2.INCIDENT_STATE_FILING_FAILED,
                failure="try 3: Connection refused",
                follows="tabc1/1/settled",
            ),
            incident_pb2.Incident(
                key="tabc1/1/settled",
                state=incident_pb2.INCIDENT_STATE_FILED,
                external_id="#7",
                url="https://tracker/7",
                also_task_ids=["tabd2"],
            ),
        ]
        yield found


def test_incidents_say_where_they_are_filed_or_why_they_are_not(at: Desk) -> None:
    """Every page, one line each: its state, its place at the tracker, or the failure."""
    code, out, err = at.run("incidents", "--task", "tabc1")
    assert (code, err) == (0, "")
    failed, filed = (line for line in out.splitlines() if "settled" in line)
    assert "filing failed: try 3: Connection refused" in failed
    assert "with 1 more" in filed
    assert "https://tracker/7" in filed
    asked = at.got(pb.ListIncidentsRequest)
    assert (asked.task_id, asked.resolved) == ("tabc1", False)


def test_incidents_as_json_are_one_document_with_every_field(at: Desk) -> None:
    """What a script reads is the contract's own message."""
    code, out, err = at.run("incidents", "--resolved", "--json")
    assert (code, err) == (0, "")
    assert [each["key"] for each in json.loads(out)] == ["tabc1/2/settled", "tabc1/1/settled"]
    assert json.loads(out)[0]["follows"] == "tabc1/1/settled"
    assert at.got(pb.ListIncidentsRequest).resolved


@pytest.mark.parametrize("command", ["task", "why"])
def test_a_task_that_was_given_up_says_why_where_and_what_to_do(at: Desk, command: str) -> None:
    """The diagnosis, the incident of this epoch and its place or what filing failed with, and the command that goes on."""
    given_up = task("tabe3", state=task_pb2.TASK_STATE_SETTLED, epoch=2, diagnosis="the worker said: no login")
    given_up.incidents.extend(at.operator.incidents)
    at.operator.tasks.append(given_up)
    for incident, number in zip(given_up.incidents, (2, 1), strict=True):
        incident.epoch = number
    code, out, _ = at.run(command, "tabe3")
    assert code == 0
    said = {line[: line.find("  ")]: line.split("  ")[-1].strip() for line in out.splitlines() if "  " in line}
    assert said["diagnosis"] == "the worker said: no login"
    assert (said["incident"], said["tracker"]) == (
        "tabc1/2/settled, filing failed",
        "filing failed: try 3: Connection refused",
    )
    assert "`lanewarden reopen tabe3`" in said["to go on"]
    assert not {"diagnosis", "incident", "to go on"} & {
        line.partition(" ")[0] for line in at.run(command, "tabc1")[1].splitlines()
    }


def test_an_incident_is_resolved_by_its_key(at: Desk) -> None:
    """Said once, for people or for scripts; an unknown key is a refusal with an exit code and no traceback."""
    code, out, err = at.run("incident", "resolve", "tabc1/1/settled")
    assert (code, out, err) == (0, "tabc1/1/settled is resolved\n", "")
    code, out, _ = at.run("incident", "resolve", "tabc1/1/settled", "--json")
    assert json.loads(out)[0]["state"] == "INCIDENT_STATE_RESOLVED"
    at.operator.refusals["ResolveIncident"] = refuse(Reason.INCIDENT_UNKNOWN, "no incident 'x' here")
    code, out, err = at.run("incident", "resolve", "x")
    assert (code, out) == (Exit.REFUSED, "")
    assert "no incident 'x' here" in err
