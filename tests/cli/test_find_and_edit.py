"""Finding jobs by tags and payloads, and editing one, on the command line and in the synchronous library."""

import pytest

from fairlead import JobFilter, sync
from fairlead.errors import JobNotEditable
from tests.cli.test_commands import Shell

CUSTOMER = '{"customer": {"id": 42}}'


@pytest.fixture
def job(shell: Shell) -> str:
    """A job with tags, beside another one."""
    shell("jobs", "enqueue", "anything", "--tenant", "acme", "--tag", "eu", "{}")
    these = ("--tag", "eu", "--tag", "nightly", CUSTOMER)
    return str(shell.json("jobs", "enqueue", "anything", "--tenant", "acme", *these)["id"])


def ids(shell: Shell, *options: str) -> list[str]:
    return [one["id"] for one in shell.json("jobs", "list", *options)["items"]]


def test_jobs_are_found_and_changed_by_tags_and_payload(shell: Shell, job: str) -> None:
    assert len(ids(shell, "--tag", "eu")) == 2
    assert ids(shell, "--tag", "eu", "--tag", "nightly") == [job]
    assert ids(shell, "--contains", CUSTOMER) == [job]

    counted = shell("jobs", "cancel", "--tenant", "acme", "--tag", "eu", "--contains", CUSTOMER, "--dry-run")
    assert counted.output == (
        '1 job matches --tenant acme --payload-contains {"customer":{"id":42}} --tags eu and are queued or running.\n'
    )
    assert shell("jobs", "cancel", "--contains", CUSTOMER, "--yes").output == "canceled 1 job.\n"
    assert shell("jobs", "retry", "--tag", "nightly", "--yes").output == "queued again 1 job.\n"


def test_a_value_that_is_not_json_is_refused(shell: Shell) -> None:
    assert shell.refused("jobs", "list", "--contains", "{customer") == "invalid_input"


def test_a_job_is_edited(shell: Shell, job: str) -> None:
    said = shell(
        "jobs", "edit", job, "--payload", '{"n": 2}', "--priority", "7", "--in", "1h", "--tag", "new"
    )
    assert said.output == f"edited {job}\n"
    shown = shell.json("jobs", "show", job)
    assert (shown["payload"], shown["priority"], shown["tags"]) == ({"n": 2}, 7, ["new"])
    assert shown["scheduled_for"] > shown["queued_at"]

    assert shell.json("jobs", "edit", job, "--no-tags")["tags"] is None
    for options in ((), ("--tag", "a", "--no-tags"), ("--in", "soon"), ("--payload", "{")):
        assert shell.refused("jobs", "edit", job, *options) == "invalid_input", options
    shell("jobs", "cancel", job)
    assert shell.refused("jobs", "edit", job, "--priority", "1") == "job_not_editable"


def test_the_library_finds_and_edits(database_url: str, job: str) -> None:
    with sync.Fairlead(database_url) as fl:
        page = fl.list_jobs(JobFilter(tenant="acme", tags=["nightly"]))
        assert [str(one.id) for one in page.items] == [job]
        assert fl.edit(job, priority=3, tags=["x"]).tags == ("x",)
        wanted = JobFilter(tenant="acme", payload_contains={"customer": {"id": 42}})
        assert fl.cancel_jobs(wanted, dry_run=True).count == 1
        assert fl.cancel_jobs(wanted).count == 1
        with pytest.raises(JobNotEditable):
            fl.edit(job, priority=4)
        assert fl.retry_jobs(wanted).count == 1
