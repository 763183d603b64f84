"""Many jobs canceled and retried by filter, and the filters that every command shares."""

import pytest

from tests.cli.test_commands import Shell
from tests.tables import each_case


@pytest.fixture
def queued(shell: Shell) -> None:
    """Three jobs of one definition, and one each of another definition and of another tenant."""
    lines = [
        *(f'{{"definition": "anything", "tenant": "acme", "correlation_id": "c{n}"}}' for n in range(3)),
        '{"definition": "greet", "tenant": "acme", "payload": {"name": "Ada"}}',
        '{"definition": "anything", "tenant": "umbrella"}',
    ]
    shell.json("jobs", "enqueue", "--file", "-", stdin="\n".join(lines))


def counts(shell: Shell, *argv: str) -> int:
    return len(shell.json("jobs", "list", *argv)["items"])


def test_jobs_that_match_are_counted_then_canceled_then_retried(shell: Shell, queued: None) -> None:
    these = ("--definition", "anything", "--tenant", "acme")
    counted = shell("jobs", "cancel", *these, "--dry-run")
    assert counted.output == (
        "3 jobs match --tenant acme --definition-key anything and are queued or running.\n"
    )
    assert counts(shell, "--status", "canceled") == 0

    assert shell("jobs", "cancel", *these, "--yes").output == "canceled 3 jobs.\n"
    assert (counts(shell, "--status", "canceled"), counts(shell, "--status", "queued")) == (3, 2)

    again = shell.json("jobs", "retry", "--status", "canceled", "--yes", "--limit", "2")
    assert again == {"count": 2, "more": True, "skipped": 0, "reasons": {}, "dry_run": False}
    assert counts(shell, "--status", "queued,canceled") == 5
    written = shell.json("audit", "--action", "JOBS_RETRIED")["items"]
    assert [one["details"]["count"] for one in written] == [2]


def test_without_a_person_to_ask_nothing_is_changed_unless_yes_is_said(shell: Shell, queued: None) -> None:
    refused = shell("jobs", "cancel", "--status", "queued")

    assert refused.exit_code == 1
    assert "5 jobs match --status queued" in refused.stderr
    assert "add --yes" in refused.stderr
    assert counts(shell, "--status", "queued") == 5


@each_case("verb", ["cancel", "retry"])
def test_everything_is_never_meant_by_leaving_everything_out(shell: Shell, verb: str) -> None:
    refused = shell("jobs", verb, "--tenant", "acme", "--yes")
    assert refused.exit_code == 1
    assert f"Select the jobs to {verb}: give a job's id, or at least one option" in refused.stderr


def test_one_job_by_its_id_and_many_by_a_filter_are_not_mixed(shell: Shell, queued: None) -> None:
    [job, *_] = shell.json("jobs", "list")["items"]
    assert shell.refused("jobs", "cancel", job["id"], "--status", "queued") == "invalid_input"
    assert shell.refused("jobs", "retry", "--status", "failed", "--payload", "{}") == "invalid_input"
    assert shell.json("jobs", "cancel", job["id"])["status"] == "canceled"


def test_a_match_of_none_is_said_and_is_no_failure(shell: Shell) -> None:
    done = shell("jobs", "retry", "--status", "failed", "--created-after", "2026-02-16")
    assert done.exit_code == 0
    assert done.output.startswith(
        "No jobs match --status failed --created-after 2026-02-16T00:00:00+00:00 and"
    )


@each_case(
    "options", [("--status", "queued,canceled"), ("--status", "queued", "--status", "canceled, failed")]
)
def test_statuses_are_given_with_commas_or_repeated(
    shell: Shell, queued: None, options: tuple[str, ...]
) -> None:
    shell("jobs", "cancel", "--definition", "greet", "--yes")
    assert counts(shell, *options) == 5
    assert "'nosuch' is not one of" in shell("jobs", "list", "--status", "queued,nosuch").stderr
