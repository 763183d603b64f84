"""A real PostgreSQL for every test: one server a test process, one database (or rolled-back transaction) a test."""

import asyncio
import gc
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any

import argon2
import httpcore2
import hypothesis
import psycopg
import pytest
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback

from fairlead import Fairlead, Settings
from fairlead.actions import passwords
from fairlead.db import migrate, scratch
from fairlead.db.answer_reader import Answers
from fairlead.db.binaries import find_binaries
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import replace_database
from fairlead.db.tx import Tx
from tests import citus, given
from tests.budget import DEEP, FAST, Budget
from tests.databases import Connection, Databases, copy_database
from tests.sessions import Sessions, shared_sessions
from tests.skips import Skips
from tests.thorough import FAST_MARKS, THOROUGH_MARKS, has_no_test_for

# Run the tests on a distributed schema of a Citus cluster: see `make citus`.
ON_CITUS = os.environ.get("FAIRLEAD_TEST_CITUS") == "1"
# Run the tests on this version of PostgreSQL, if it is installed.
POSTGRES = os.environ.get("FAIRLEAD_TEST_POSTGRES")
MIGRATED = "migrated"
TEMPLATE = "fairlead_template"
WORLD_TEMPLATE = "world_template"
# No autovacuum: it changes statistics, and a database with other statistics is not lent to another test.
QUIET = {"autovacuum_naptime": "1d"}
# PostgreSQL's own tables in a database. Written anew they are sixty files fewer, and each test copies all files.
CATALOGS = """
select string_agg(oid::regclass::text, ', ') from pg_class
where relnamespace = 'pg_catalog'::regnamespace and relkind = 'r' and not relisshared
"""


# On a busy machine any example may take its time.
# a busy machine is no fault of a test
hypothesis.settings.register_profile(
    "fairlead", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fairlead")


def pytest_configure(config: pytest.Config) -> None:
    """Register what each run reports, and keep the temporary folders of tests in memory, if programs may run there.

    Dozens of tests make a PostgreSQL cluster, and a disk takes three times as long.
    """
    config.pluginmanager.register(Skips())
    run = {FAST_MARKS: FAST, THOROUGH_MARKS: DEEP}.get(config.option.markexpr)
    is_whole = config.args_source is config.ArgsSource.TESTPATHS or hasattr(config, "workerinput")
    if run and is_whole:
        config.pluginmanager.register(Budget(run))
    memory = scratch.MEMORY
    if "TMPDIR" in os.environ or not scratch._is_roomy(memory) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules without a test for this run: to import all of them takes longer than most folders' tests."""
    return has_no_test_for(config.option.markexpr, collection_path) or None


def pytest_runtest_setup(item: pytest.Item) -> None:
    mark = item.get_closest_marker("postgres_only")
    if mark is not None and ON_CITUS:
        pytest.skip(f"not for Citus: {mark.args[0]}")


TABLES = "select oid from pg_class where relnamespace = 'fairlead'::regnamespace and relkind = 'r'"
if ON_CITUS:  # the shards; the tables themselves can be changed on the coordinator only
    TABLES += " and oid not in (select logicalrelid from pg_dist_partition)"
KEEP_STATISTICS = f"""
do $$
declare
    one regclass;
begin
    for one in {TABLES} loop
        execute format('alter table %s set (autovacuum_enabled = off)', one);
    end loop;
end
$$
"""


@pytest.fixture(scope="session", autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A state folder of this test process's own: it sees no `fairlead dev` of the user or of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def own_system_folder() -> Iterator[None]:
    """Where root's embedded servers have their clusters: in memory if pytest's folders are, which the server's user cannot enter.

    It may have copies of PostgreSQL's programs, too, so it must be a place where programs may run.
    """
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        yield
        return
    with scratch.scratch_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAIRLEAD_SYSTEM_DIR", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def on_citus() -> Iterator[None]:
    """With FAIRLEAD_TEST_CITUS, the setting `citus` of this process and of those that it starts."""
    if not ON_CITUS:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Settings.__init__.__kwdefaults__ or {}, "citus", True)
        patch.setenv("FAIRLEAD_CITUS", "true")
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """Passwords hashed in a millisecond in this test process: argon2 is slow on purpose. Programs hash in full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """The certificates of this system, read by the first HTTP client only: that takes ten times as long as a request."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture(scope="session")
def server_urls() -> Iterator[tuple[str, ...]]:
    """The URL of a PostgreSQL of this test process's own; with FAIRLEAD_TEST_CITUS, of a Citus coordinator and a worker."""
    if not ON_CITUS:
        binaries = find_binaries(int(POSTGRES)) if POSTGRES else None
        with (
            scratch.scratch_folder() as folder,
            EmbeddedPostgres(folder / "data", binaries=binaries, settings=QUIET) as embedded,
        ):
            yield (embedded.url,)
        return
    binaries = citus.find_citus()
    if binaries is None:
        pytest.fail("FAIRLEAD_TEST_CITUS is set, but no PostgreSQL with Citus is installed here")
    # some tests truncate and lock tables, which are the shards
    settings = {"citus.enable_manual_changes_to_shards": "on"}
    with citus.citus_cluster(binaries, workers=1, settings=settings) as cluster:
        yield cluster.nodes


@pytest.fixture(scope="session")
def server(server_urls: tuple[str, ...]) -> str:
    """The URL of the PostgreSQL that the tests use; of a Citus cluster, the node that holds the schemas."""
    return server_urls[-1]


@pytest.fixture(scope="session")
def nodes(server_urls: tuple[str, ...]) -> Iterator[tuple[Connection, ...]]:
    """A connection to each server, to create and drop databases."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(psycopg.connect(url, autocommit=True)) for url in server_urls)


@pytest.fixture(scope="session")
def migrated(server: str, server_urls: tuple[str, ...], nodes: tuple[Connection, ...]) -> str:
    """The name of a migrated database without a tenant, to be copied: to migrate takes seven times as long."""
    for node in nodes:
        node.execute(f"create database {MIGRATED}".encode())
    if ON_CITUS:
        urls = [replace_database(one, MIGRATED) for one in server_urls]
        citus.join_nodes(urls)
        asyncio.run(migrate.up(urls[0], "fairlead", citus=True))
        return MIGRATED
    url = replace_database(server, MIGRATED)
    asyncio.run(migrate.up(url, "fairlead"))
    with psycopg.connect(url, autocommit=True) as connection:
        [(catalogs,)] = connection.execute(CATALOGS).fetchall()
        connection.execute(f"vacuum full {catalogs}".encode())
    return MIGRATED


@pytest.fixture(scope="session")
def template(server: str, migrated: str, nodes: tuple[Connection, ...]) -> str:
    """The name of a migrated database with two tenants and a few definitions, to be copied."""
    copy_database(nodes, TEMPLATE, migrated)

    async def fill() -> None:
        async with (
            Database(replace_database(server, TEMPLATE), Settings()) as database,
            database.transaction() as tx,
        ):
            await given.tenants_and_definitions(tx)

    asyncio.run(fill())
    return TEMPLATE


@pytest.fixture(scope="session")
def sessions(server: str) -> Iterator[Sessions]:
    """The server sessions that the tests of this process share."""
    with shared_sessions(server) as sessions:
        yield sessions


@pytest.fixture(scope="session")
def databases(
    server: str, template: str, nodes: tuple[Connection, ...], sessions: Sessions
) -> Iterator[Databases]:
    """Copies of the template."""
    with closing(Databases(server, template, nodes, sessions)) as copies:
        yield copies


@pytest.fixture(scope="session")
def world_databases(
    server: str, template: str, nodes: tuple[Connection, ...], sessions: Sessions
) -> Iterator[Databases]:
    """Copies of the template with everybody's tokens: to make those takes longer than to copy a database."""
    from tests.server.world import populate  # noqa: PLC0415 - it imports all of the server

    copy_database(nodes, WORLD_TEMPLATE, template)
    asyncio.run(populate(replace_database(server, WORLD_TEMPLATE)))
    with closing(Databases(server, WORLD_TEMPLATE, nodes, sessions)) as copies:
        yield copies


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, filled as the template is, and with everybody's tokens if the test has a world."""
    has_world = not {"world", "console"}.isdisjoint(request.fixturenames)
    databases: Databases = request.getfixturevalue("world_databases" if has_world else "databases")
    with databases.lend(new="new_database" in request.fixturenames) as url:
        yield url


@pytest.fixture
def new_database() -> None:
    """Makes `database_url` a new copy with new sessions: for a test that counts sessions, or that sets something for new ones."""


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url)


RoundTrips = Callable[[Tx], list[str]]


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> RoundTrips:
    """Of the connection of a transaction: the waits for answers since the last call, by the names of their generators."""
    names, read = defaultdict[Answers, list[str]](list), Answers.read

    async def note(answers: Answers, steps: Any) -> Any:
        names[answers].append(steps.__qualname__)
        return await read(answers, steps)

    monkeypatch.setattr(Answers, "read", note)
    return lambda tx: names.pop(tx.connection._answers, [])


@pytest.fixture
async def db(database_url: str, settings: Settings) -> AsyncIterator[Database]:
    """An open database of the test's own."""
    async with Database(database_url, settings) as database:
        yield database
        await given.no_inconsistencies(database)


@pytest.fixture(scope="session")
async def shared_db(server: str, template: str, nodes: tuple[Connection, ...]) -> AsyncIterator[Database]:
    """One database for all tests that roll back what they do."""
    copy_database(nodes, "shared", template)
    with psycopg.connect(replace_database(server, "shared"), autocommit=True) as admin:
        # Autovacuum would count the rows between two tests: none. Plans for empty tables take minutes for full ones.
        admin.execute(KEEP_STATISTICS)
    # a long lease, so that a transaction may be idle while a test looks at what it did
    async with Database(replace_database(server, "shared"), Settings(lease_seconds=3600)) as database:
        yield database


@pytest.fixture
async def tx(shared_db: Database) -> AsyncIterator[Tx]:
    """A transaction that is rolled back at the end of the test."""
    async with shared_db.transaction() as transaction:
        yield transaction
        await transaction.connection.execute("rollback")
        await transaction.connection.execute("begin")


@pytest.fixture
async def fl(settings: Settings) -> AsyncIterator[Fairlead]:
    """An open Fairlead on a database of the test's own; queue and record must agree at the end."""
    async with Fairlead(settings=settings, actor="tester") as opened:
        yield opened
        await given.no_inconsistencies(opened.database)


@pytest.fixture(autouse=True)
def _plain_logging() -> Iterator[None]:
    """The log as structlog has it by default, whatever a command set up in this process, but with plain tracebacks.

    By default it draws frames around the locals of every function, for a second or more: longer than a transaction may be
    idle that logs an error.
    """
    structlog.reset_defaults()
    *before, _ = structlog.get_config()["processors"]
    structlog.configure(processors=[*before, ConsoleRenderer(exception_formatter=plain_traceback)])
    yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector off what collecting leaves: a million objects that stay, and were looked at again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
