import asyncio
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fairlead import Fairlead, Settings
from fairlead.actions import doctor
from fairlead.db import migrate, migration_locks, stored_functions
from fairlead.db.addresses import describe_address
from fairlead.db.binaries import find_binaries
from fairlead.db.database import Database
from fairlead.db.listen import check_round_trip
from fairlead.db.migrate import Migration
from fairlead.db.scratch import scratch_database
from fairlead.db.statements import split_statements
from fairlead.db.stored_functions import StoredFunction
from fairlead.errors import (
    DatabaseRefused,
    DatabaseUnreachable,
    MigrationFailed,
    ProcessOutdated,
    SchemaOutdated,
)
from fairlead.model.finding import Verdict
from tests import given
from tests.schema_dump import COMMITTED, dumped
from tests.tables import each_case
from tests.waiting import SECONDS

ALL = len(migrate.list_migrations())


@pytest.fixture
async def empty(server: str) -> AsyncIterator[str]:
    async with scratch_database(server, f"empty_{uuid4().hex[:12]}") as url:
        yield url


@pytest.fixture
def installed(database_url: str, new_database: None) -> str:
    """A copy of a database that was migrated, which costs less than to migrate one."""
    return database_url


async def test_the_committed_schema_is_what_the_migrations_make(server: str) -> None:
    with psycopg.connect(server) as connection:
        if connection.info.server_version // 10000 != find_binaries().major:
            pytest.skip("the committed schema is one of the embedded PostgreSQL")
    committed = COMMITTED.read_text(encoding="utf-8").partition("\n\n")[2]
    assert await dumped(server) == committed, "run: make schema"


async def test_up_applies_everything_once(empty: str) -> None:
    assert len(await migrate.up(empty, "fairlead")) == ALL
    assert await migrate.up(empty, "fairlead") == []
    await migrate.check(empty, "fairlead")
    assert all(step.applied_at for step in await migrate.status(empty, "fairlead"))


@pytest.mark.thorough
async def test_many_processes_migrating_at_once_apply_each_migration_once(empty: str) -> None:
    applied = await asyncio.gather(*(migrate.up(empty, "fairlead") for _ in range(6)))

    assert sorted(len(one) for one in applied) == [0, 0, 0, 0, 0, ALL]


async def test_an_empty_database_is_outdated_and_says_what_to_run(empty: str) -> None:
    with pytest.raises(SchemaOutdated, match="fairlead migrate up"):
        await migrate.check(empty, "fairlead")
    assert [step.applied_at for step in await migrate.status(empty, "fairlead")] == [None] * ALL
    with pytest.raises(SchemaOutdated):
        await Fairlead(empty).open()


async def test_a_server_that_is_too_old_is_refused_before_anything_is_changed(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 140023)
    too_old = "PostgreSQL 14 is too old: Fairlead needs PostgreSQL 15 or later"

    with pytest.raises(DatabaseRefused, match=too_old):
        await migrate.up(empty, "fairlead")
    with pytest.raises(DatabaseRefused, match=too_old):
        await Database(empty, Settings()).open()
    [*_, last] = [finding async for finding in doctor.examine(empty, Settings())]

    assert (last.check, last.verdict) == ("database", Verdict.FAIL)
    assert too_old in last.detail
    with psycopg.connect(empty) as connection:
        assert connection.execute("select to_regnamespace('fairlead')").fetchone() == (None,)


def add_later_migration(url: str, *, needs: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "insert into fairlead.migrations (number, name, checksum, needs) values (9999, 'future', '', %s)",
            [needs],
        )


async def test_a_database_for_a_later_version_is_refused(installed: str) -> None:
    add_later_migration(installed, needs=9999)

    with pytest.raises(ProcessOutdated, match=r"needs migration 9999.*Upgrade Fairlead here"):
        await migrate.check(installed, "fairlead")
    with pytest.raises(SchemaOutdated, match="Upgrade Fairlead"):
        await migrate.up(installed, "fairlead")


async def test_a_later_version_that_admits_this_one_changes_nothing_but_migrate_up(installed: str) -> None:
    add_later_migration(installed, needs=1)
    with psycopg.connect(installed) as connection:
        connection.execute("update fairlead.function_sources set checksum = 'later' where name = 'claim'")

    await migrate.check(installed, "fairlead")

    with pytest.raises(SchemaOutdated, match="Upgrade Fairlead"):
        await migrate.up(installed, "fairlead")


async def test_a_database_from_before_migrations_said_what_they_need_is_upgraded(installed: str) -> None:
    with psycopg.connect(installed) as connection:
        connection.execute("alter table fairlead.migrations drop column needs")

    await migrate.check(installed, "fairlead")
    await migrate.up(installed, "fairlead")

    with psycopg.connect(installed) as connection:
        assert connection.execute("select distinct needs = number from fairlead.migrations").fetchall() == [
            (True,)
        ]


@each_case(("text", "needs"), [("-- needs: 0001\nselect 1;", 1), ("-- Says nothing.\nselect 1;", 3)])
def test_a_migration_needs_itself_unless_it_says_otherwise(text: str, needs: int) -> None:
    assert migrate.Migration(3, "more", text).needs == needs


async def test_a_migration_that_was_changed_afterwards_is_refused(installed: str) -> None:
    with psycopg.connect(installed) as connection:
        connection.execute("update fairlead.migrations set checksum = 'other' where number = 1")

    with pytest.raises(SchemaOutdated, match="a different text"):
        await migrate.check(installed, "fairlead")


async def test_a_database_from_before_the_first_release_is_refused(installed: str) -> None:
    with psycopg.connect(installed) as connection:
        connection.execute("update fairlead.migrations set name = 'tenants_and_definitions' where number = 1")
        connection.execute(
            "insert into fairlead.migrations (number, name, checksum, needs) values (2, 'jobs', '', 2)"
        )

    for step in (migrate.check, migrate.up):
        with pytest.raises(SchemaOutdated, match="Start a new one"):
            await step(installed, "fairlead")


def test_a_file_is_split_into_its_statements() -> None:
    text = """-- a comment; with a semicolon
create table a (b text default ';''');
do $$ begin perform 1; end $$;
select $x$;$$;$x$, '--', 3 - 1; -- the end;
"""
    first, second, third = split_statements(text)

    assert first.endswith("default ';''');")
    assert second == "do $$ begin perform 1; end $$;"
    assert third == "select $x$;$$;$x$, '--', 3 - 1;"


@pytest.fixture
def broken_last_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    real = migrate.list_migrations()
    broken = Migration(ALL + 1, "broken", "create table fairlead.half (); select 1 / 0;")
    monkeypatch.setattr(migrate, "list_migrations", lambda: (*real, broken))


async def test_a_failed_migration_leaves_nothing_half_done(empty: str, broken_last_migration: None) -> None:
    with pytest.raises(MigrationFailed, match="rolled back"):
        await migrate.up(empty, "fairlead")

    with psycopg.connect(empty) as connection:
        assert connection.execute("select to_regclass('fairlead.half')").fetchone() == (None,)
        assert connection.execute("select count(*) from fairlead.migrations").fetchone() == (ALL,)


@pytest.fixture
def another_column(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it was opened, a migration that needs a table to itself and does not wait for it long."""
    assert fl.is_open
    real = migrate.list_migrations()
    wider = Migration(9999, "wider", "alter table fairlead.job_records add column wider integer;")
    monkeypatch.setattr(migrate, "list_migrations", lambda: (*real, wider))
    for name in ("WAIT_SECONDS", "PAUSE_SECONDS"):
        monkeypatch.setattr(migration_locks, name, 0.05)


@pytest.mark.usefixtures("another_column")
async def test_a_migration_that_waits_for_a_reader_holds_up_no_enqueue(
    fl: Fairlead, database_url: str
) -> None:
    waits = asyncio.Queue[str]()
    with psycopg.connect(database_url, application_name="a report") as reader:
        reader.execute("select from fairlead.jobs")
        migrating = asyncio.create_task(migrate.up(database_url, "fairlead", tell=waits.put_nowait))
        async with asyncio.timeout(SECONDS):
            for _ in range(3):
                told = await waits.get()
                assert f"pid {reader.info.backend_pid} (a report" in told
                await fl.enqueue("anything", tenant=given.TENANT)
    assert [one.name for one in await migrating] == ["wider"]


@pytest.mark.usefixtures("another_column")
async def test_a_migration_that_never_gets_its_locks_says_who_has_them(
    fl: Fairlead, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration_locks, "PATIENCE_SECONDS", 0.0)
    with psycopg.connect(database_url) as reader:
        reader.execute("select from fairlead.jobs")
        with pytest.raises(MigrationFailed, match=f"pid {reader.info.backend_pid} .*idle in transaction"):
            async with asyncio.timeout(SECONDS):
                await migrate.up(database_url, "fairlead")
    async with fl.transaction() as tx:
        assert await tx.values("select max(number) from fairlead.migrations") == [
            (migrate.list_migrations()[-2].number,)
        ]


@pytest.mark.thorough
async def test_two_schemas_live_side_by_side_in_one_database(empty: str) -> None:
    for schema in ("fairlead", "second"):
        await migrate.up(empty, schema)
    for schema in ("fairlead", "second"):
        async with Fairlead(settings=Settings(database_url=empty, schema=schema)) as fl:
            async with fl.transaction() as tx:
                await given.tenants_and_definitions(tx)
            await fl.enqueue("anything", tenant="acme", dedupe_key="same key, other schema")
            await fl.enqueue_many([given.request()] * 1)
            await given.no_inconsistencies(fl.database)
    with psycopg.connect(empty) as connection:
        connection.execute("drop schema fairlead cascade")
        assert connection.execute("select count(*) from second.jobs").fetchone() == (2,)
        # nothing in the second schema leaned on the first
        assert connection.execute(
            "select outcome from second.enqueue_one('acme', 'anything', '{}')"
        ).fetchone() == ("enqueued",)


async def test_a_role_that_may_not_create_is_told_what_to_grant(empty: str) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        role = f"poor_{uuid4().hex[:8]}"
        connection.execute(f"create role {role} login")
        with pytest.raises(MigrationFailed, match="GRANT CREATE"):
            await migrate.up(make_conninfo(empty, user=role), "fairlead")
        connection.execute(f"drop role {role}")


async def test_an_address_where_nobody_listens_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnreachable) as refused:
        await migrate.check("postgresql://u:hunter2@127.0.0.1:1/none", "fairlead")
    assert "127.0.0.1:1" in refused.value.message
    assert "hunter2" not in refused.value.message
    with pytest.raises(DatabaseUnreachable) as refused:
        short = replace(Settings(), connect_timeout_seconds=1)
        await Fairlead(settings=replace(short, database_url="postgresql://u:hunter2@127.0.0.1:1/none")).open()
    assert "hunter2" not in str(refused.value.as_dict())


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@127.0.0.1/none",
        "postgresql://u:hunter2%zz@127.0.0.1/none",
        "postgresql://u:s3cr3t/hunter2@127.0.0.1/none",
        "postgresql://u:hunter2/s3cr3t@127.0.0.1/none",
        "postgresql://u:s3cr3t@hunter2@127.0.0.1/none",
        "postgresql://u@server:hunter2@127.0.0.1/none",
        "host=127.0.0.1 password=s3cr3t hunter2",
    ],
)
async def test_nothing_of_an_address_that_cannot_be_read_is_repeated(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(Settings(), connect_timeout_seconds=1)
    for connect in (
        lambda: migrate.check(url, "fairlead"),
        lambda: Database(url, short).open(),
        lambda: check_round_trip(url, "fairlead"),
        scratch_database(url, "none").__aenter__,
    ):
        with pytest.raises(DatabaseUnreachable, match="FAIRLEAD_DATABASE_URL") as refused:
            await connect()
        told = "".join(traceback.format_exception(refused.value)) + caplog.text
        assert "hunter2" not in told
        assert "s3cr3t" not in told
    assert describe_address(url) == "an address that cannot be read"


@each_case(
    ("url", "place"),
    [
        ("postgresql://u:a:b@h:1/d?user=a@b", "h:1/d"),
        ("postgresql://h/d?user=a@b", "h:5432/d"),
        ("postgresql://u:a%40b@/d?host=/run/pg", "/run/pg:5432/d"),
        ("host=h dbname=d password='a@b/c'", "h:5432/d"),
    ],
)
def test_an_address_that_can_be_read_is_named_by_its_place(url: str, place: str) -> None:
    assert describe_address(url) == place


@pytest.fixture
def changed_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """`uuid7` with other text, `closed_until` with another argument list and more rights, `tell_run_end` with another result."""
    real = stored_functions.list_stored_functions()
    changed = {
        "uuid7": ("language sql volatile", "language sql /* changed */ volatile"),
        "closed_until": ("moment timestamptz\n", "moment timestamptz, spare integer default null\n"),
        "tell_run_end": ("returns boolean", "returns integer"),
    }
    rights = {"closed_until": "grant execute on function fairlead.closed_until to fairlead_tenant;\n"}
    texts = [
        StoredFunction(
            one.name, one.text.replace(*changed.get(one.name, ("", ""))) + rights.get(one.name, "")
        )
        for one in real
    ]
    monkeypatch.setattr(stored_functions, "list_stored_functions", lambda: tuple(texts))


async def test_a_function_is_applied_again_when_its_source_changes(
    installed: str, request: pytest.FixtureRequest
) -> None:
    await migrate.check(installed, "fairlead")
    request.getfixturevalue("changed_function")

    with pytest.raises(SchemaOutdated, match=r"3 stored function\(s\): closed_until, tell_run_end, uuid7"):
        await migrate.check(installed, "fairlead")
    await migrate.up(installed, "fairlead")

    await migrate.check(installed, "fairlead")
    with psycopg.connect(installed) as connection:
        assert connection.execute(
            "select count(*), max(pronargs) from pg_proc where proname = 'closed_until'"
        ).fetchone() == (1, 10)
        assert connection.execute(
            "select has_function_privilege('fairlead_tenant', oid, 'execute'), has_function_privilege('public', oid, 'execute') "
            "from pg_proc where proname = 'closed_until'"
        ).fetchone() == (True, False)
        assert connection.execute(
            "select prorettype::regtype::text from pg_proc where proname = 'tell_run_end'"
        ).fetchall() == [("integer",)]
