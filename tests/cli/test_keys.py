"""`fairlead keys`: turn encryption on, seal what is stored, and rotate."""

from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlead.actions import encryption
from fairlead.keys.master import decode_master_key
from tests.cli.test_commands import Shell
from tests.databases import find_in_database

SECRET = "sk-live-0123456789-canary"  # noqa: S105 - a canary
SCHEMA = '{"type": "object", "properties": {"token": {"type": "string", "x-secret": true}}}'


@pytest.fixture
def shell(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """A shell whose processes have a master key."""
    shell = Shell(database_url)
    generated = shell("keys", "generate").output.strip()
    assert decode_master_key(generated) is not None
    (tmp_path / "one.key").write_text(generated)
    monkeypatch.setenv("FAIRLEAD_ENCRYPTION_KEY", f"file:{tmp_path / 'one.key'}")
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    monkeypatch.setattr(encryption, "STATE_SECONDS", 0.0)
    return shell


def enqueue(shell: Shell) -> str:
    payload = f'{{"token": "{SECRET}"}}'
    return str(shell.json("jobs", "enqueue", "pay", payload, "--tenant", "acme")["id"])


def read_token(url: str, job_id: str) -> Any:
    with psycopg.connect(url) as connection:
        [found] = connection.execute(
            "select payload -> 'token' from fairlead.jobs where id = %s", [job_id]
        ).fetchone() or [None]
        return found


def test_secrets_are_sealed_and_keys_rotated(
    shell: Shell, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("definitions", "add", "pay", "--arg-schema", SCHEMA).exit_code == 0
    before = enqueue(shell)
    added = ["triggers", "add", "--tenant", "acme", "--definition", "pay", "--cron", "0 2 * * *"]
    trigger = shell.json(*added, "--payload", f'{{"token": "{SECRET}"}}')["id"]
    assert read_token(database_url, before) == SECRET
    assert "in plain form" in shell("keys", "status").output
    assert "fairlead keys enable" in shell("keys", "seal").output
    assert read_token(database_url, before) == SECRET

    assert "sealed from now on" in shell("keys", "enable").output
    assert shell.json("keys", "enable") == {"enabled": True, "changed": False}
    after = enqueue(shell)
    assert read_token(database_url, after).keys() == {"$sealed"}
    assert shell.json("keys", "seal") == {"sealed": 2}
    assert read_token(database_url, before).keys() == {"$sealed"}

    (tmp_path / "two.key").write_text(shell("keys", "generate").output)
    monkeypatch.setenv("FAIRLEAD_ENCRYPTION_OLD_KEYS", f"file:{tmp_path / 'one.key'}")
    monkeypatch.setenv("FAIRLEAD_ENCRYPTION_KEY", f"file:{tmp_path / 'two.key'}")
    rotated = shell.json("keys", "rotate", "--data")
    assert rotated == {"rewrapped": 2, "made": 2, "sealed": 3, "retired": 2, "used": 0}

    monkeypatch.delenv("FAIRLEAD_ENCRYPTION_OLD_KEYS")
    status = shell.json("keys", "status")
    assert status["enabled"] is True
    assert sorted(one["status"] for one in status["keys"]) == ["current", "current", "retired", "retired"]
    assert {one["master_key"] for one in status["keys"]} == {status["master_key"]}
    assert "[redacted]" in shell("jobs", "show", after).output
    assert SECRET not in shell("jobs", "show", after).output
    assert "[redacted]" in shell("triggers", "show", trigger).output
    assert find_in_database(database_url, SECRET) == []


def test_without_a_key_nothing_can_be_enabled(database_url: str) -> None:
    refused = Shell(database_url)("keys", "enable")

    assert refused.exit_code == 1
    assert "encryption_key" in refused.output


def test_an_unknown_tenant_is_refused(shell: Shell) -> None:
    shell("keys", "enable")

    assert shell("keys", "rotate", "--data", "--tenant", "nobody").exit_code == 1
