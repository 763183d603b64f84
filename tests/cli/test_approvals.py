"""`fairlead approvals`, and the same in the synchronous library."""

from collections.abc import Iterator

import pytest

from fairlead import Context, JobStatus, Settings, sync
from tests.cli.test_commands import Shell
from tests.given import TENANT

FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture
def fl(settings: Settings) -> Iterator[sync.Fairlead]:
    fl = sync.Fairlead(settings=settings, actor="tester")

    @fl.job(durable=True)
    def pay(ctx: Context) -> list[object]:
        answer = ctx.wait_for_approval("pay", title="Pay the bill", form=FORM)
        return [answer.approved, answer.values, answer.comment]

    with fl:
        yield fl


def test_approvals_are_listed_shown_and_answered(shell: Shell, fl: sync.Fairlead) -> None:
    jobs = [fl.enqueue("pay", tenant=TENANT) for _ in range(2)]
    assert "No matching approvals" in shell("approvals", "list").output
    fl.tick()
    second, first = (str(one["id"]) for one in shell.json("approvals", "list", "--tenant", TENANT)["items"])
    page = shell.json("approvals", "list", "--limit", "1")
    assert page["next_cursor"] == second
    [rest] = shell.json("approvals", "list", "--cursor", second)["items"]
    assert rest["id"] == first
    assert [str(one.id) for one in fl.list_approvals(job_id=rest["job_id"]).items] == [first]
    assert "Pay the bill" in shell("approvals", "show", first).output

    assert shell.refused("approvals", "approve", first) == "approval_invalid"
    assert shell.refused("approvals", "approve", first, "{") == "invalid_input"
    approved = shell.json("approvals", "approve", first, '{"n": 3}', "--comment", "fine")
    assert (approved["status"], approved["values"]) == ("approved", {"n": 3})
    assert "rejected" in shell("approvals", "reject", second).output
    assert shell.refused("approvals", "reject", second) == "approval_closed"
    listed = shell.json("approvals", "list", "--status", "any")["items"]
    assert [one["status"] for one in listed] == ["rejected", "approved"]
    assert fl.read_approval(first).answered_by == approved["answered_by"]

    fl.tick()
    done = [fl.read(job.id) for job in jobs]
    assert [one.status for one in done] == [JobStatus.SUCCEEDED] * 2
    assert sorted(str(one.output) for one in done) == ["[False, None, None]", "[True, {'n': 3}, 'fine']"]
