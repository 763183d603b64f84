"""`fairlead users`: added, listed, changed; passwords come from standard input or a person, never from argv."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests import given
from tests.cli.test_commands import Shell
from tests.second_factors import protected
from tests.server.world import world_on

PASSWORD = "correct horse battery staple"  # noqa: S105


def said(database_url: str, *argv: str, stdin: str = "") -> Any:
    return Shell(database_url).json("users", *argv, stdin=stdin)


def refusal(database_url: str, *argv: str, stdin: str = "") -> str:
    return Shell(database_url).refused("users", *argv, stdin=stdin)


def test_a_user_is_added_listed_and_changed(database_url: str) -> None:
    add = ("add", "ada@acme.test", "--role", "operator", "--tenant", "acme", "--password-stdin")
    made = said(database_url, *add, stdin=PASSWORD + "\n")

    assert (made["email"], made["role"]) == ("ada@acme.test", "operator")
    assert "password" not in json.dumps(made)
    assert [one["id"] for one in said(database_url, "list", "--tenant", "acme")["items"]] == [made["id"]]
    assert said(database_url, "list", "--tenant", "umbrella")["items"] == []
    changed = said(database_url, "change", "ADA@acme.test", "--role", "viewer", "--disable")
    assert (changed["role"], changed["disabled_at"] is not None) == ("viewer", True)
    enabled = said(
        database_url, "change", made["id"], "--enable", "--password-stdin", stdin="another password"
    )
    assert enabled["disabled_at"] is None


def test_what_cannot_be_is_refused(database_url: str) -> None:
    add = ("add", "a@b.test", "--role", "viewer", "--tenant", "acme")
    assert refusal(database_url, *add, "--password-stdin", stdin="short") == "invalid_input"
    assert refusal(database_url, *add) == "invalid_input"  # nobody to ask
    assert refusal(database_url, "change", "nobody@x.test", "--disable") == "user_unknown"
    assert refusal(database_url, "change", "nobody@x.test") == "invalid_input"


def test_a_user_is_signed_out_and_loses_all_tokens(database_url: str) -> None:
    add = ("add", "ada@acme.test", "--role", "operator", "--tenant", "acme", "--password-stdin")
    made = said(database_url, *add, stdin=PASSWORD + "\n")

    for command, told in (("revoke-tokens", "revoked"), ("sign-out", "sessions_ended")):
        assert said(database_url, command, "ada@acme.test") == {"user_id": made["id"], told: 0}
        assert refusal(database_url, command, "nobody@x.test") == "user_unknown"


def test_an_identity_is_listed_and_unlinked(
    database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "fairlead.toml").write_text("")
    monkeypatch.setenv("FAIRLEAD_CONFIG", str(tmp_path / "fairlead.toml"))
    add = ("add", "ada@acme.test", "--role", "operator", "--tenant", "acme", "--password-stdin")
    made = said(database_url, *add, stdin=PASSWORD + "\n")
    given.at(database_url, given.link_identity)

    [identity] = said(database_url, "identities", "ada@acme.test")["items"]
    assert (identity["provider"], identity["subject"], identity["is_only_way"]) == (
        "work",
        "ada-1",
        False,
    )
    unlink = ("unlink", "ada@acme.test", identity["id"])
    done = said(database_url, *unlink)
    assert done == {"user_id": made["id"], "identity_id": identity["id"], "sessions_ended": 0}
    assert refusal(database_url, *unlink) == "identity_unknown"
    assert (
        "signs in with no identity provider" in Shell(database_url)("users", "identities", made["id"]).output
    )

    given.at(database_url, given.link_identity)
    given.at(database_url, given.take_password)
    [identity] = said(database_url, "identities", "ada@acme.test")["items"]
    unlink = ("unlink", "ada@acme.test", identity["id"])
    assert refusal(database_url, *unlink) == "only_sign_in"
    assert said(database_url, *unlink, "--even-if-only")["sessions_ended"] == 0


async def test_a_lost_second_factor_is_removed(database_url: str) -> None:
    async with world_on(database_url) as world:
        ada = await protected(world)

        [shown] = (await asyncio.to_thread(said, database_url, "list", "--tenant", "acme"))["items"]
        assert shown["has_second_factor"]
        changed = await asyncio.to_thread(said, database_url, "change", ada.email, "--remove-second-factor")

        assert not changed["has_second_factor"]
        assert (await ada.call("GET")).status_code == 401
        assert (await ada.login()).status_code == 200
        again = await asyncio.to_thread(refusal, database_url, "change", ada.email, "--remove-second-factor")
        assert again == "second_factor_missing"


def test_a_user_is_invited_with_a_printed_link(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invite = ("invite", "ada@acme.test", "--role", "operator", "--tenant", "acme")
    assert refusal(database_url, *invite, "--print-link") == "public_url_missing"
    monkeypatch.setenv("FAIRLEAD_PUBLIC_URL", "https://jobs.example.com")
    assert refusal(database_url, *invite) == "email_not_configured"
    assert said(database_url, "list", "--tenant", "acme")["items"] == []

    made = said(database_url, *invite, "--print-link")
    again = said(database_url, "invite", "ADA@acme.test", "--print-link")

    assert made["user"]["invitation_expires_at"] is not None
    for one in (made, again):
        assert one["link"].startswith("https://jobs.example.com/console/invitation#fl_")
    assert made["link"] != again["link"]
    assert refusal(database_url, *invite, "--print-link") == "user_exists"
    gone = said(database_url, "withdraw", "ada@acme.test")
    assert gone == {"user_id": made["user"]["id"], "withdrawn": True}
    assert said(database_url, "list", "--tenant", "acme")["items"] == []
    assert refusal(database_url, "withdraw", "ada@acme.test") == "user_unknown"
