"""`fairlead audit` and `fairlead workers`."""

import json
import signal
from datetime import UTC, datetime

from fairlead.actions.audit import AuditFilter
from fairlead.cli.audit import Follower
from fairlead.db.database import Database
from fairlead.model.access import trusted_principal
from fairlead.store import audit
from tests import given
from tests.cli.test_commands import Shell
from tests.processes import FAIRLEAD, run, started
from tests.tables import each_case
from tests.waiting import SECONDS


def actions(shell: Shell, *options: str) -> list[str]:
    return [one["action"] for one in shell.json("audit", *options)["items"]]


def test_the_audit_log_is_listed_newest_first_and_by_filter(shell: Shell) -> None:
    shell.json("tenants", "add", "initech")
    shell.json("tenants", "pause", "initech", "--note", "invoice")
    token = shell.json("tokens", "create", "ci", "--role", "viewer", "--tenant", "initech")

    assert len(actions(shell)) >= 3
    [made] = shell.json("audit", "--resource", f"token:{token['id']}")["items"]
    assert (made["tenant"], made["resource_type"], made["resource_id"]) == ("initech", "token", token["id"])
    assert actions(shell, "--resource", "token", "--tenant", "acme") == []
    assert actions(shell, "--action", made["action"], "--actor", made["actor"]) == [made["action"]]
    assert len(actions(shell, "--since", "1h")) == len(actions(shell))
    assert actions(shell, "--since", "2999-01-01") == []

    page = shell.json("audit", "--limit", "1")
    assert shell.json("audit", "--limit", "1", "--cursor", page["next_cursor"])["items"] != page["items"]
    assert "initech" in shell("audit").output
    assert "No matching audit entries" in shell("audit", "--action", "NOSUCH").output


@each_case("since", ["yesterday", "12", "5w"])
def test_a_since_that_is_no_time_is_refused_with_what_to_write(shell: Shell, since: str) -> None:
    refused = shell("audit", "--since", since)
    assert refused.exit_code == 2
    assert "2026-02-16" in refused.stderr


async def test_a_follower_finds_each_entry_once_also_one_that_was_committed_late(db: Database) -> None:
    async def write(tx: object, action: str) -> None:
        await audit.write(tx, actor="test", action=action, resource_type="job")  # type: ignore[arg-type]

    async def look() -> list[str]:
        async with db.transaction() as tx:
            return [one.action for one in await follower.look(tx, trusted_principal("test"))]

    for action in ("A", "B", "C"):
        async with db.transaction() as tx:
            await write(tx, action)
    follower = Follower(AuditFilter(actor="test"), 2)
    assert await look() == ["B", "C"]
    assert await look() == []

    async with db.transaction() as late:
        await write(late, "LATE")
        async with db.transaction() as tx:
            await write(tx, "D")
        assert await look() == ["D"]
    assert await look() == ["LATE"]
    assert await look() == []


def test_the_audit_log_is_followed_until_ctrl_c(database_url: str) -> None:
    env = {"FAIRLEAD_DATABASE_URL": database_url}
    with started([FAIRLEAD, "audit", "--follow", "--json", "--resource", "tenant"], env=env) as process:
        assert process.stdout is not None
        run("tenants", "add", "initech", env=env)
        lines = iter(process.stdout.readline, "")
        seen = next(one for one in map(json.loads, lines) if one["tenant"] == "initech")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert seen["actor"].startswith("cli:")


def test_workers_are_listed_and_stale_ones_are_marked(shell: Shell, database_url: str) -> None:
    assert "There are no workers. Start one with" in shell("workers").output
    given.at(database_url, given.two_workers)

    said = shell("workers").output.splitlines()
    first, second = "web-1:7:abc", "web-2:7:def"
    assert [line.split()[:3] for line in said[1:]] == [[first, "alive", "3/10"], [second, "stale", "1/10"]]
    assert said[1].rstrip().endswith("greet, anything")
    assert said[2].rstrip().endswith("everything")
    listed = shell.json("workers", "--after", first, "--limit", "1")["items"]
    assert [(one["worker_id"], one["stale"]) for one in listed] == [(second, True)]
    assert datetime.fromisoformat(listed[0]["last_seen_at"]) < datetime.now(UTC)
