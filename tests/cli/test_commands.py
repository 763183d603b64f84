"""The commands as a person and a script use them, against a real database."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg.conninfo import make_conninfo

from fairlead import Settings
from fairlead.actions import doctor
from fairlead.actions.doctor import judge_facts
from fairlead.cli import main
from fairlead.db.database import Database
from fairlead.db.listen import check_round_trip
from fairlead.model.finding import Verdict
from fairlead.store.system import DatabaseFacts
from tests import given
from tests.tables import each_case
from tests.waiting import SECONDS


class Shell:
    """Runs `fairlead` commands on one database."""

    def __init__(self, database_url: str) -> None:
        self.env = {"FAIRLEAD_DATABASE_URL": database_url, "COLUMNS": "80"}

    def __call__(self, *argv: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, argv, env=self.env, input=stdin)

    def json(self, *argv: str, stdin: str | None = None) -> Any:
        result = self(*argv, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def refused(self, *argv: str, stdin: str | None = None) -> str:
        """The code of the refusal."""
        result = self(*argv, "--json", stdin=stdin)
        assert (result.exit_code, result.stdout) == (1, "")
        return str(json.loads(result.stderr)["code"])


def text(shell: Shell, *argv: str, stdin: str | None = None) -> str:
    """What people read, with single spaces."""
    result = shell(*argv, stdin=stdin)
    assert result.exit_code == 0, result.output
    return re.sub(r" *\n", "\n", re.sub(r" +", " ", result.output))


def test_tenants_are_added_listed_paused_and_resumed(shell: Shell) -> None:
    added = shell.json(
        "tenants", "add", "initech", "--name", "Initech", "--timezone", "Europe/Paris", "--weight", "3"
    )
    assert (added["slug"], added["timezone"], added["weight"], added["paused_at"]) == (
        "initech",
        "Europe/Paris",
        3,
        None,
    )
    assert [one["slug"] for one in shell.json("tenants", "list")["items"]] == [
        "acme",
        "global",
        "initech",
        "umbrella",
    ]
    paused = shell.json("tenants", "pause", "initech", "--note", "invoice overdue")
    assert (paused["pause_note"], paused["paused_at"] is not None) == ("invoice overdue", True)
    assert "invoice overdue" in shell("tenants", "list").output
    assert shell.json("tenants", "pause", "initech", "--resume")["paused_at"] is None
    shell.json("tenants", "pause", "initech")
    assert shell.json("tenants", "resume", "initech", "--note", "paid")["paused_at"] is None

    assert shell.refused("tenants", "add", "initech") == "tenant_exists"
    assert shell.refused("tenants", "add", "Not A Slug") == "invalid_input"
    assert shell.refused("tenants", "add", "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09") == "invalid_input"


def test_a_tenant_is_changed_where_it_is_said_and_nowhere_else(shell: Shell) -> None:
    shell.json("tenants", "add", "initech", "--weight", "3", "--max-running", "5")

    shell.json("tenants", "set", "initech", "--max-running", "50", "--timezone", "Europe/Paris")
    changed = shell.json("tenants", "set", "initech", "--name", "Initech")
    free = shell.json("tenants", "set", "initech", "--no-max-running")

    told = ("name", "timezone", "weight", "max_running")
    assert [changed[name] for name in told] == ["Initech", "Europe/Paris", 3, 50]
    assert [free[name] for name in told] == ["Initech", "Europe/Paris", 3, None]
    audited = shell.json("audit", "--action", "tenant_changed")["items"]
    assert [entry["details"] for entry in reversed(audited)] == [
        {"slug": "initech", "max_running": 50, "timezone": "Europe/Paris"},
        {"slug": "initech", "name": "Initech"},
        {"slug": "initech", "max_running": None},
    ]
    assert shell.refused("tenants", "set", "acme") == "invalid_input"
    assert (
        shell.refused("tenants", "set", "acme", "--max-running", "5", "--no-max-running") == "invalid_input"
    )


def test_definitions_are_put_changed_and_listed(shell: Shell, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["provider_id"]}')
    made = shell.json(
        "definitions", "put", "sync-dropbox", "--arg-schema", str(schema), "--max-attempts", "5"
    )
    assert (made["version"], made["max_attempts"], made["arg_schema"]["required"]) == (1, 5, ["provider_id"])

    changed = shell.json("definitions", "put", "sync-dropbox", "--timeout-seconds", "60", "--inactive")
    assert (changed["version"], changed["max_attempts"], changed["timeout_seconds"]) == (2, 5, 60)
    assert shell.refused("jobs", "enqueue", "sync-dropbox", "{}", "--tenant", "acme") == "definition_inactive"
    assert shell.json("definitions", "put", "sync-dropbox", "--inactive")["version"] == 2  # nothing to change
    assert "sync-dropbox" in shell("definitions", "list").output

    assert shell.refused("definitions", "put", "k", "--arg-schema", "{") == "invalid_input"
    assert shell.refused("definitions", "put", "k", "--arg-schema", "no-such-file.json") == "invalid_input"


def test_a_job_is_enqueued_with_tags_times_and_a_debounced_key(shell: Shell) -> None:
    enqueue = ("jobs", "enqueue", "greet", '{"name": "Ada"}', "--tenant", "acme")
    times = ("--timeout", "90s", "--expires-in", "2h", "--dedupe-key", "k", "--unique-for", "1d")
    made = shell.json(*enqueue, "--tag", "red", "--tag", "size 7", *times)
    assert (made["tags"], made["timeout_seconds"]) == (["red", "size 7"], 90)
    assert "red, size 7" in shell("jobs", "show", made["id"]).output
    first = shell.json(*enqueue, "--debounce", "page:7:30m:2h")
    again = shell.json(*enqueue, "--debounce", "page:7:90m:2h:first")
    assert (again["id"], again["deduplicated"]) == (first["id"], True)
    assert again["scheduled_for"] > first["scheduled_for"]
    for option in ("--tag=a,b", "--timeout=soon", "--expires-in=0s", "--unique-for=1d", "--debounce=key"):
        assert shell.refused(*enqueue, option) == "invalid_input"


def test_a_job_is_enqueued_shown_canceled_and_retried(shell: Shell) -> None:
    made = shell.json("jobs", "enqueue", "greet", '{"name": "Ada"}', "--tenant", "acme", "--dedupe-key", "k")
    assert (made["status"], made["deduplicated"], made["payload"]) == ("queued", False, {"name": "Ada"})
    again = shell.json("jobs", "enqueue", "greet", '{"name": "Ada"}', "--tenant", "acme", "--dedupe-key", "k")
    assert (again["id"], again["deduplicated"]) == (made["id"], True)

    assert shell.json("jobs", "show", made["id"])["attempts"] == []
    assert shell.json("jobs", "cancel", made["id"])["status"] == "canceled"
    assert shell.json("jobs", "retry", made["id"], "--payload", '{"name": "Grace"}')["payload"] == {
        "name": "Grace"
    }
    assert made["id"] in shell("jobs", "list").output
    assert "queued" in shell("jobs", "show", made["id"]).output

    assert shell.refused("jobs", "show", "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09") == "job_unknown"
    assert shell.refused("jobs", "enqueue", "greet", "{", "--tenant", "acme") == "invalid_input"
    assert shell.refused("jobs", "enqueue", "greet", "{}") == "invalid_input"
    assert shell("jobs", "show", "not-an-id").exit_code == 2


def test_a_job_waits_for_its_time_or_a_while(shell: Shell) -> None:
    enqueue = ("jobs", "enqueue", "anything", "--tenant", "acme")
    at = ("--scheduled-for", "2040-01-01T00:00:00Z")
    assert shell.json(*enqueue, *at)["scheduled_for"] == at[1]
    for option, written, seconds in (
        ("--in", "90s", 90),
        ("--in", "5m", 300),
        ("--delay", "2h", 7200),
        ("--in", "1d", 86_400),
    ):
        before = datetime.now(UTC)
        made = shell.json(*enqueue, option, written)
        due, queued = (datetime.fromisoformat(made[name]) for name in ("scheduled_for", "queued_at"))
        assert before <= due - timedelta(seconds=seconds) <= queued
    for words in (["soon"], ["-5m"], ["5m", *at]):
        assert shell.refused(*enqueue, "--in", *words) == "invalid_input"


def test_pages_are_walked_by_cursor(shell: Shell) -> None:
    lines = "\n".join(json.dumps({"definition": "anything", "payload": {"n": n}}) for n in range(5))
    shell.json("jobs", "enqueue", "--file", "-", "--tenant", "acme", stdin=lines)

    first = shell.json("jobs", "list", "--limit", "3")
    second = shell.json("jobs", "list", "--limit", "3", "--cursor", first["next_cursor"])

    assert [one["payload"]["n"] for one in first["items"] + second["items"]] == [4, 3, 2, 1, 0]
    assert second["next_cursor"] is None
    assert f"--cursor {first['next_cursor']}" in shell("jobs", "list", "--limit", "3").stderr
    assert shell.json("jobs", "list", "--status", "failed", "--status", "canceled")["items"] == []
    assert "fairlead jobs enqueue" in shell("jobs", "list", "--status", "failed").output


def test_a_file_is_enqueued_all_or_none(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    good = {"definition": "greet", "tenant": "acme", "payload": {"name": "Ada"}, "dedupe_key": "twice"}
    file.write_text("\n".join([json.dumps(good), "", json.dumps(good)]))
    assert "enqueued 1, already active 1" in shell("jobs", "enqueue", "--file", str(file)).output

    for bad, code in (
        ("not json", "invalid_input"),
        ('{"definition": "greet", "tenant": "acme", "payload": {}}', "payload_invalid"),
        ('{"definition": "greet", "tenant": "acme", "oops": 1}', "invalid_input"),
    ):
        file.write_text(json.dumps({**good, "dedupe_key": "other"}) + "\n" + bad + "\n")
        assert shell.refused("jobs", "enqueue", "--file", str(file)) == code
        assert "line 2" in shell("jobs", "enqueue", "--file", str(file)).stderr.lower().replace(
            "job 1 of", "line 2"
        )
    assert len(shell.json("jobs", "list")["items"]) == 1


def test_migrate_says_what_there_is_and_what_is_missing(shell: Shell, database_url: str) -> None:
    assert shell.json("migrate", "up") == {"applied": []}
    assert shell.json("migrate", "check") == {"current": True}
    assert all(step["applied_at"] for step in shell.json("migrate", "status")["items"])
    with psycopg.connect(database_url) as connection:
        connection.execute("drop schema fairlead cascade")
    assert shell.refused("migrate", "check") == "schema_outdated"
    assert shell.refused("jobs", "list") == "schema_outdated"
    assert "fairlead migrate up" in shell("jobs", "list").stderr
    assert len(shell.json("migrate", "up")["applied"]) >= 1


@each_case(
    ("seconds", "verdict"),
    [(-4, Verdict.WARN), (-1, Verdict.OK), (5, Verdict.OK), (11, Verdict.OK), (14, Verdict.WARN)],
)
def test_the_doctor_takes_no_slow_answer_for_another_clock(seconds: int, verdict: Verdict) -> None:
    """The database was asked at 0 s and answered at 10 s."""
    asked_at = datetime(2026, 2, 16, 12, tzinfo=UTC)
    facts = DatabaseFacts(
        version="18.0",
        encoding="UTF8",
        fsync="on",
        full_page_writes="on",
        synchronous_commit="on",
        clock=asked_at + timedelta(seconds=seconds),
        role="tester",
    )

    found = {one.check: one.verdict for one in judge_facts(facts, asked_at, asked_at + timedelta(seconds=10))}

    assert found.pop("clock") is verdict
    assert set(found.values()) == {Verdict.OK}


def test_the_doctor_finds_nothing_wrong_with_a_healthy_database(
    shell: Shell, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given.a_well_kept_database(database_url)
    # a notification may take its time here
    monkeypatch.setattr(doctor, "check_round_trip", partial(check_round_trip, seconds=SECONDS))
    result = shell("doctor")
    assert result.exit_code == 0
    assert "fail" not in result.output
    for check in (
        "database",
        "version",
        "fsync",
        "full_page_writes",
        "synchronous_commit",
        "clock",
        "rights",
    ):
        assert check in result.output
    verdicts = {json.loads(line)["verdict"] for line in shell("doctor", "--json").stdout.splitlines()}
    assert verdicts == {"ok"}


def test_the_doctor_names_what_is_wrong_and_what_to_do(shell: Shell, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        [(name,)] = connection.execute("select current_database()").fetchall()
        connection.execute(f"alter database {name} set synchronous_commit = off")
        connection.execute(
            "insert into fairlead.active_keys values (gen_random_uuid(), 'x', gen_random_uuid())"
        )
    result = shell("doctor")
    assert result.exit_code == 1
    assert "Set synchronous_commit = on" in result.output
    assert "holds an active key but is not active" in result.output

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("drop schema fairlead cascade")
    result = shell("doctor")
    assert result.exit_code == 1
    assert "fairlead migrate up" in result.output


@each_case("scheme", ["mysql", "postgresql+psycopg"])
@each_case(
    "argv",
    [
        ("jobs", "list"),
        ("doctor",),
        ("migrate", "status"),
        ("migrate", "up"),
        ("scheduler",),
    ],
)
def test_no_command_shows_the_password_of_an_address_that_is_wrong(
    shell: Shell, scheme: str, argv: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    shell.env["FAIRLEAD_DATABASE_URL"] = f"{scheme}://u:hunter2@127.0.0.1:1/none"
    shell.env["FAIRLEAD_CONNECT_TIMEOUT_SECONDS"] = "1"

    result = shell(*argv)

    said = result.output + "".join(capfd.readouterr()) + str(result.exception)
    assert result.exit_code == 1
    assert "hunter2" not in said
    assert "FAIRLEAD_DATABASE_URL" in said
    # of an address that SQLAlchemy would take, the driver alone is too much
    assert ("127.0.0.1:1/none" in said) == (scheme != "mysql")


def test_the_doctor_names_the_rights_that_a_poor_role_lacks(shell: Shell, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create role poor login; grant usage on schema fairlead to poor;")
        connection.execute("grant select on all tables in schema fairlead to poor")
        shell.env["FAIRLEAD_DATABASE_URL"] = make_conninfo(database_url, user="poor")
        result = shell("doctor")
        connection.execute("drop owned by poor; drop role poor")
    assert result.exit_code == 1
    assert "insert on fairlead.job_records" in result.output or "delete on fairlead" in result.output


def test_a_bad_setting_is_refused_before_anything_happens(shell: Shell) -> None:
    shell.env["FAIRLEAD_POOL_SIZE"] = "many"
    assert shell.refused("jobs", "list") == "setting_invalid"


@pytest.mark.parametrize(
    ("argv", "asked_for"),
    [(("greet", '{"name": "Ada"}'), "--tenant"), (("--tenant", "acme"), "DEFINITION")],
    ids=["no-tenant", "no-definition"],
)
def test_what_an_enqueue_lacks_is_asked_for_in_the_words_of_the_command_line(
    shell: Shell, argv: tuple[str, ...], asked_for: str
) -> None:
    result = shell("jobs", "enqueue", *argv)

    assert result.exit_code == 1
    assert f"Give {asked_for}" in result.stderr
    assert "correlation_id" not in result.stderr
    assert shell.refused("jobs", "enqueue", *argv) == "invalid_input"


def test_a_webhook_that_signs_with_what_is_not_set_up_here_is_added_with_a_warning(
    shell: Shell, tmp_path: Path
) -> None:
    shell.json("definitions", "put", "http.request")
    file = tmp_path / "fairlead.toml"
    file.write_text('[http.secrets]\nhook = "env:HOOK"\n[http.tenants.acme.secrets]\nown = "env:OWN"\n')
    shell.env["FAIRLEAD_CONFIG"] = str(file)
    add = ("webhooks", "add", "https://example.com/", "--event", "job.failed", "--tenant")

    assert "no signing secret" not in shell(*add, "acme").stderr
    assert "'hook'" in shell(*add, "acme", "--sign-with", "hook").stderr
    assert "bound to no tenant" in shell(*add, "acme", "--sign-with", "hook").stderr.replace("\n", " ")
    assert "no signing secret" not in shell(*add, "acme", "--sign-with", "own").stderr
    for tenant, name in (("acme", "nosuch"), ("umbrella", "own")):
        result = shell(*add, tenant, "--sign-with", name)
        assert result.exit_code == 0
        assert f"The signing secret '{name}' is not in {file} on this machine" in result.stderr


def test_the_times_of_a_tenant_are_a_table_or_json(shell: Shell, database_url: str) -> None:
    assert "No job of this tenant has ended" in shell("jobs", "times", "--tenant", "acme").output

    async def end_one() -> None:
        async with Database(database_url, Settings(database_url=database_url)) as db, db.transaction() as tx:
            await given.ended_job(tx, "succeeded")

    asyncio.run(end_one())
    assert [
        line.split()[:2] for line in shell("jobs", "times", "--tenant", "acme").output.splitlines()[1:]
    ] == [
        ["all", "1"],
        ["greet", "1"],
    ]
    told = shell.json("jobs", "times", "--tenant", "acme")
    assert (told["jobs"], set(told["wait_ms"])) == (1, {"p50", "p95", "p99"})
