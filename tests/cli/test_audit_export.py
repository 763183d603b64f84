"""`fairlead audit export`, `verify` and `key`."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlead.actions import audit_export, tenants
from fairlead.db.database import Database
from fairlead.errors import Forbidden
from fairlead.model.access import Principal, Role, trusted_principal
from fairlead.store import audit
from tests.cli.test_commands import Shell


class Exports(Shell):
    """Runs commands with a key, in a folder."""

    def __init__(self, database_url: str, folder: Path) -> None:
        super().__init__(database_url)
        self.folder = folder
        self.key = str(folder / "key.pem")
        assert self("audit", "key", self.key).exit_code == 0

    def export(self, name: str, *options: str) -> list[dict[str, Any]]:
        """The lines of a new export."""
        path = self.folder / name
        result = self("audit", "export", "--key", self.key, "--output", str(path), *options)
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    def verify(self, *names: str) -> list[dict[str, Any]]:
        paths = [str(self.folder / name) for name in names]
        items: list[dict[str, Any]] = self.json("audit", "verify", *paths, "--key", f"{self.key}.pub")[
            "items"
        ]
        return items


@pytest.fixture
def shell(database_url: str, tmp_path: Path) -> Exports:
    return Exports(database_url, tmp_path)


def test_an_export_is_complete_signed_and_verified(shell: Exports) -> None:
    shell.json("tenants", "add", "initech")
    shell.json("tenants", "pause", "initech", "--note", "invoice")
    listed = shell.json("audit", "--limit", "1000")["items"]

    first, *entries, end = shell.export("a.jsonl")

    for one in entries:
        del one["hash"], one["type"], one["n"]
    assert entries == listed[::-1]
    assert (first["type"], first["tenant"], end["type"], end["entries"]) == (
        "audit",
        None,
        "end",
        len(entries),
    )
    assert stat.S_IMODE((shell.folder / "a.jsonl").stat().st_mode) == 0o600
    assert [path.name for path in shell.folder.iterdir() if path.name.startswith(".")] == []
    [found] = shell.verify("a.jsonl")
    assert (found["entries"], found["last_hash"]) == (len(entries), end["last"])
    assert (
        "unchanged, signed with the key"
        in shell("audit", "verify", str(shell.folder / "a.jsonl"), "--key", shell.key).output
    )
    # the log attests the export
    [recorded] = shell.json("audit", "--action", "audit_exported")["items"]
    assert (recorded["details"]["last_hash"], recorded["details"]["entries"]) == (end["last"], len(entries))


def test_an_export_of_a_tenant_has_only_its_entries(shell: Exports) -> None:
    for slug in ("initech", "hooli"):
        shell.json("tenants", "add", slug)
    first, *entries, _ = shell.export("a.jsonl", "--tenant", "initech")

    assert first["tenant"] == "initech"
    assert entries
    assert {one["tenant_id"] for one in entries} == {first["tenant_id"]}
    [recorded] = shell.json("audit", "--action", "audit_exported", "--tenant", "initech")["items"]
    assert recorded["tenant_id"] == first["tenant_id"]


def test_exports_continue_each_other(shell: Exports) -> None:
    shell.json("tenants", "add", "initech")
    before = shell.export("a.jsonl")
    shell.json("tenants", "add", "hooli")
    after = shell.export("b.jsonl", "--previous", str(shell.folder / "a.jsonl"))
    third = shell.export("c.jsonl", "--previous", str(shell.folder / "b.jsonl"))

    assert after[0]["since"] == before[0]["until"]
    assert {one["action"] for one in third if one["type"] == "entry"} == {"audit_exported"}
    whole = shell.export("whole.jsonl", "--until", third[0]["until"])
    parts = [one["at"] for part in (before, after, third) for one in part if one["type"] == "entry"]
    assert parts == [one["at"] for one in whole if one["type"] == "entry"]
    assert len(shell.verify("a.jsonl", "b.jsonl", "c.jsonl")) == 3
    for names in (("a.jsonl", "c.jsonl"), ("b.jsonl", "a.jsonl"), ("a.jsonl", "whole.jsonl")):
        paths = [str(shell.folder / name) for name in names]
        assert shell.refused("audit", "verify", *paths, "--key", shell.key) == "audit_export_invalid"
    other = shell(
        "audit",
        "export",
        "--key",
        shell.key,
        "--tenant",
        "hooli",
        "--previous",
        str(shell.folder / "a.jsonl"),
    )
    assert (other.exit_code, other.stdout) == (1, "")
    assert "another tenant" in other.stderr


def test_a_changed_export_is_refused_with_its_line_and_is_not_continued(shell: Exports) -> None:
    shell.json("tenants", "add", "initech")
    shell.export("a.jsonl")
    path = shell.folder / "a.jsonl"
    path.write_text(path.read_text().replace("initech", "innocent", 1))

    refused = shell("audit", "verify", str(path), "--key", shell.key)
    assert refused.exit_code == 1
    assert "[audit_export_invalid]" in refused.stderr
    assert " does not fit its hash" in refused.stderr.replace("\n", " ")
    continued = shell("audit", "export", "--key", shell.key, "--previous", str(path))
    assert (continued.exit_code, continued.stdout) == (1, "")


def test_the_key_may_come_from_the_environment(shell: Exports) -> None:
    shell.env["FAIRLEAD_AUDIT_KEY"] = Path(shell.key).read_text()
    exported = shell("audit", "export")
    assert exported.exit_code == 0
    path = shell.folder / "a.jsonl"
    path.write_text(exported.stdout)
    assert shell.json("audit", "verify", str(path))["items"][0]["entries"] >= 0
    assert "PRIVATE" not in exported.output


def test_what_cannot_be_used_is_refused_with_what_to_do(shell: Exports) -> None:
    path = shell.folder / "a.jsonl"
    shell.export("a.jsonl")
    for options, said in (
        (["--key", shell.key, "--output", str(path)], "the file exists"),
        (["--key", shell.key, "--output", str(path / "no" / "folder")], "cannot be written"),
        (["--key", f"{shell.key}.pub"], "[audit_key_invalid]"),
        (["--key", str(shell.folder / "none.pem")], "cannot be read"),
        ([], "fairlead audit key FILE"),
        (["--key", shell.key, "--until", "2999-01-01"], "future"),
        (["--key", shell.key, "--since", "1h", "--until", "2h"], "before the end"),
        (["--key", shell.key, "--since", "1h", "--previous", str(path)], "leave it out"),
        (["--key", shell.key, "--tenant", "nobody"], "tenant_unknown"),
    ):
        refused = shell("audit", "export", *options)
        assert (refused.exit_code, refused.stdout) == (1, ""), options
        assert said in refused.stderr.replace("\n", " ")
    assert "exists" in shell("audit", "key", shell.key).stderr
    assert shell.refused("audit", "verify", str(shell.folder / "none"), "--key", shell.key) == "invalid_input"


async def test_pages_of_all_tenants_come_in_order_and_none_twice(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "PAGE_ROWS", 7)
    principal = trusted_principal("test")
    async with db.transaction() as tx:
        made = [await tenants.add(tx, principal, slug=f"export-{n}", name=f"export-{n}") for n in range(5)]
        owners = [None, *(one.id for one in made)]
        for n in range(60):
            await audit.write(tx, actor="test", action=f"E{n}", resource_type="job", tenant_id=owners[n % 6])
    async with db.transaction() as tx:
        planned = await audit_export.plan(
            tx, principal, since=datetime.now(UTC) - timedelta(days=1), until=None
        )
    found = [
        one async for page in audit_export.read_entries(db.transaction, principal, planned) for one in page
    ]

    assert [one.action for one in found if one.actor == "test" and one.action.startswith("E")] == [
        f"E{n}" for n in range(60)
    ]
    assert len({one.place for one in found}) == len(found)


async def test_an_export_needs_the_permission_in_the_tenant(db: Database) -> None:
    async with db.transaction() as tx:
        tenant = await tenants.add(tx, trusted_principal("test"), slug="export-owner", name="owner")
        for role in (Role.APPLICATION, Role.WORKER, Role.AGENT):
            with pytest.raises(Forbidden):
                await audit_export.plan(tx, Principal("p", role, tenant.id), since=None, until=None)
        viewer = Principal("viewer", Role.VIEWER, tenant.id)
        assert (await audit_export.plan(tx, viewer, since=None, until=None)).since is None
