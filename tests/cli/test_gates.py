"""`pause`, `resume` and `jobs why`, as a person and a script use them."""

import pytest

from tests import given
from tests.cli.test_commands import Shell


def enqueued(shell: Shell) -> str:
    return str(shell.json("jobs", "enqueue", "anything", "--tenant", "acme")["id"])


def codes(shell: Shell, job_id: str) -> list[str]:
    return [reason["code"] for reason in shell.json("jobs", "why", job_id)["reasons"]]


@pytest.mark.parametrize(
    ("options", "kind", "name"),
    [
        ((), "system", "the system"),
        (("--tenant", "acme"), "tenant", "tenant acme"),
        (("--definition", "anything"), "definition", "definition anything"),
    ],
)
def test_a_gate_is_closed_and_opened_for_people(
    shell: Shell, options: tuple[str, ...], kind: str, name: str
) -> None:
    job_id = enqueued(shell)
    paused = shell("pause", *options, "--note", "new disk")
    assert paused.exit_code == 0
    assert f"paused {name}" in paused.output
    assert "new disk" in paused.output
    assert f"{name} was paused already" in shell("pause", *options).output

    assert codes(shell, job_id)[0] == f"{kind}_paused"
    told = shell("jobs", "why", job_id).output
    assert f"{kind}_paused" in told
    assert "new disk" in told
    assert "by cli:" in told

    assert f"resumed {name}" in shell("resume", *options).output
    assert f"{name} was not paused" in shell("resume", *options).output
    assert f"{kind}_paused" not in codes(shell, job_id)


def test_a_gate_is_closed_and_opened_for_machines(shell: Shell, database_url: str) -> None:
    shell.json("hosts", "add", "rack-1", "--tenant", "acme")
    paused = shell.json("pause", "--host", "rack-1", "--note", "new disk")
    assert (paused["kind"], paused["name"], paused["note"], paused["changed"]) == (
        "host",
        "rack-1",
        "new disk",
        True,
    )
    assert shell.json("pause", "--host", paused["id"])["paused_at"] == paused["paused_at"]
    resumed = shell.json("resume", "--host", "rack-1")
    assert (resumed["changed"], resumed["paused_at"]) == (True, None)
    assert shell.json("resume", "--host", "rack-1")["changed"] is False
    assert shell.json("pause")["kind"] == "system"


def test_what_is_unknown_or_too_much_is_refused(shell: Shell) -> None:
    for command in ("pause", "resume"):
        assert shell.refused(command, "--tenant", "") == "tenant_unknown"
        assert shell.refused(command, "--tenant", "acme", "--definition", "anything") == "invalid_input"
    assert shell.json("resume")["changed"] is False  # nothing of it paused the system
    assert shell.refused("jobs", "why", "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09") == "job_unknown"
    assert shell("jobs", "why", "not-an-id").exit_code == 2


def test_why_tells_every_reason_in_whole_sentences(shell: Shell, database_url: str) -> None:
    enqueued(shell)
    job_id = enqueued(shell)
    answer = shell.json("jobs", "why", job_id)
    assert (answer["job_id"], answer["status"]) == (job_id, "queued")
    assert [reason["code"] for reason in answer["reasons"]] == ["no_worker", "queued_behind"]
    assert answer["reasons"][1]["facts"] == {"ahead": 1, "at_least": False}
    told = shell("jobs", "why", job_id).output
    assert all(f"{reason['code']} " in told and reason["message"] in told for reason in answer["reasons"])

    given.at(database_url, given.add_worker, "box:1:boot")
    assert codes(shell, job_id) == ["queued_behind"]
    shell.json("jobs", "cancel", job_id)
    assert codes(shell, job_id) == ["terminal"]
    assert "Canceled, " in shell("jobs", "why", job_id).output
