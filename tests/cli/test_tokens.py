"""`fairlead tokens`: made, listed, revoked."""

from typing import Any

import psycopg

from tests.cli.test_commands import Shell


def said(database_url: str, *argv: str) -> Any:
    return Shell(database_url).json("tokens", *argv)


def refusal(database_url: str, *argv: str) -> str:
    return Shell(database_url).refused("tokens", *argv)


def test_a_token_is_made_listed_and_revoked(database_url: str) -> None:
    made = said(database_url, "create", "ci", "--role", "viewer", "--tenant", "acme", "--expires-days", "1")
    said(database_url, "create", "root", "--role", "super_admin")

    assert made["secret"].startswith("fl_")
    assert made["expires_at"] is not None
    assert [one["name"] for one in said(database_url, "list")["items"]] == ["ci", "root"]
    [own] = said(database_url, "list", "--tenant", "acme")["items"]
    assert (own["prefix"], "secret" in own) == (made["secret"][:11], False)
    assert [one["name"] for one in said(database_url, "list", "--after", made["id"])["items"]] == ["root"]
    assert said(database_url, "revoke", made["id"])["revoked_at"] is not None


def test_people_are_told_that_the_secret_is_shown_once(database_url: str) -> None:
    shell = Shell(database_url)
    made = shell("tokens", "create", "root", "--role", "super_admin")
    listed = shell("tokens", "list")

    assert "fl_" in made.stdout
    assert "not shown again" in made.stdout
    assert "super_admin" in listed.stdout


def test_the_list_says_that_a_tokens_maker_is_disabled(database_url: str) -> None:
    said(database_url, "create", "ci", "--role", "viewer", "--tenant", "acme")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "with maker as (insert into fairlead.users (email, role, password_hash, disabled_at) "
            "values ('root@x.test', 'super_admin', 'x', clock_timestamp()) returning id) "
            "update fairlead.tokens set user_id = maker.id from maker"
        )

    [token] = said(database_url, "list")["items"]
    listed = Shell(database_url)("tokens", "list")

    assert token["state"] == "maker_disabled"
    assert "its creator is disabled" in listed.stdout


def test_what_cannot_be_is_refused(database_url: str) -> None:
    missing = "0198a7a4-0000-7000-8000-000000000000"
    assert refusal(database_url, "create", "x", "--role", "viewer") == "invalid_input"
    assert refusal(database_url, "create", "x", "--role", "viewer", "--tenant", "nope") == "tenant_unknown"
    assert refusal(database_url, "revoke", missing) == "token_unknown"


def test_a_token_ends_by_itself_and_is_for_some_definitions(database_url: str) -> None:
    Shell(database_url).json("definitions", "put", "mine")
    worker = said(database_url, "create", "w", "--role", "worker", "--tenant", "acme", "--definition", "mine")
    root = said(database_url, "create", "root", "--role", "super_admin", "--no-expiry")

    assert (worker["definitions"], worker["expires_at"] is None) == (["mine"], False)
    assert (root["definitions"], root["expires_at"]) == (None, None)
    assert refusal(database_url, "create", "x", "--role", "worker", "--definition", "nope") == "invalid_input"


def test_a_token_has_scopes_and_addresses_and_is_rotated(database_url: str) -> None:
    shell = Shell(database_url)
    create = ("tokens", "create", "ci", "--role", "operator", "--tenant", "acme")
    made = shell.json(*create, "--scope", "jobs.read", "--scope", "jobs.enqueue", "--allow", "10.0.0.0/8")
    assert (made["scopes"], made["addresses"]) == (["jobs.enqueue", "jobs.read"], ["10.0.0.0/8"])

    new = shell.json("tokens", "rotate", made["id"], "--overlap", "15m")

    assert (new["scopes"], new["addresses"], new["name"]) == (made["scopes"], made["addresses"], "ci")
    assert new["secret"] != made["secret"]
    assert shell.refused("tokens", "rotate", made["id"]) == "token_ended"
    assert shell.refused("tokens", "rotate", new["id"], "--overlap", "soon") == "invalid_input"
    assert shell.refused("tokens", "rotate", new["id"], "--overlap", "31d") == "invalid_input"
    assert shell.refused(*create, "--scope", "jobs.everything") == "invalid_input"


def test_a_tenant_has_an_allow_list(database_url: str) -> None:
    shell = Shell(database_url)

    assert shell.json("tenants", "set", "acme", "--allow", "10.0.0.0/8")["addresses"] == ["10.0.0.0/8"]
    assert shell.json("tenants", "set", "acme", "--allow-all")["addresses"] is None
    assert shell.refused("tenants", "set", "acme", "--allow", "10.0.0.1/8") == "invalid_input"
    assert shell.refused("tenants", "set", "acme", "--allow", "::1", "--allow-all") == "invalid_input"
