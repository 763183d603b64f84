"""Databases and sessions that tests share must be as good as new for each test."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.db.scratch import replace_database
from tests import databases as under_test
from tests import given
from tests.conftest import ON_CITUS, TEMPLATE
from tests.databases import Connection, Databases
from tests.restoring import Original
from tests.sessions import Sessions

pytestmark = pytest.mark.skipif(ON_CITUS, reason="on Citus each test has a new copy")


@pytest.fixture
def few(
    server: str,
    template: str,
    nodes: tuple[Connection, ...],
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Databases]:
    """One database, lent again at once."""
    monkeypatch.setattr(under_test, "KEPT", 1)
    with closing(Databases(server, template, nodes, sessions)) as few:
        yield few


def name_of(url: str) -> str:
    with psycopg.connect(url) as connection:
        return connection.info.dbname


async def use(url: str) -> None:
    """Leave rows in many tables, and change those of the template."""
    async with Fairlead(settings=Settings(database_url=url), actor="tester") as fl:
        async with fl.database.transaction() as tx:
            await given.ended_job(tx, "succeeded")
            await given.running_job(tx)
            await given.due_trigger(tx)
            await given.set_tenant(tx, name="changed")
        await fl.add_tenant("another")


def test_a_database_is_lent_again_as_the_template_is(few: Databases, server: str) -> None:
    names = set()
    for _ in range(3):
        with few.lend() as url:
            names.add(name_of(url))
            assert Original(url).rows == Original(replace_database(server, TEMPLATE)).rows
            asyncio.run(use(url))
            assert Original(url).rows != Original(replace_database(server, TEMPLATE)).rows
    assert len(names) == 1


CHANGES = (
    "create table public.mine ()",
    "alter table fairlead.tenants add column more int",
    "create function public.mine() returns int language sql return 1",
    "alter function fairlead.claim cost 7",
    "alter database {name} set work_mem = '5MB'",
    "analyze fairlead.tenants",
    "create schema mine",
    "drop index fairlead.audit_by_tenant",
    "select lo_create(7)",
    "drop schema fairlead cascade",
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}' and pid <> pg_backend_pid()",
)


def test_a_database_with_other_changes_is_not_lent_again(few: Databases) -> None:
    names: list[str] = []
    for statement in CHANGES:
        with few.lend() as url:  # its session for restoring has begun
            pass
        with few.lend() as url:
            names.append(name_of(url))
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(statement.format(name=names[-1]).encode())
    with few.lend() as url:
        names.append(name_of(url))
    again = [
        statement
        for statement, (before, after) in zip(CHANGES, pairwise(names), strict=True)
        if before == after
    ]
    assert again == []


def test_a_new_database_has_no_earlier_test(few: Databases) -> None:
    with few.lend() as url:
        name = name_of(url)
    with few.lend(new=True) as url:
        assert name_of(url) != name


def test_a_session_is_reset_before_it_is_used_again(few: Databases) -> None:
    with few.lend() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            pid = connection.info.backend_pid
            connection.execute("listen fairlead")
            connection.execute("set work_mem = '5MB'")
            connection.execute("select pg_advisory_lock(7)")
            connection.execute("create temporary table mine ()")
            connection.execute("prepare mine as select 1")
            connection.execute("begin")
            connection.execute("set role fairlead_tenant")
        assert connection.closed
        with psycopg.connect(url) as connection:
            assert connection.info.backend_pid == pid
            [left] = connection.execute(
                "select current_setting('work_mem') = '5MB' or to_regclass('mine') is not null or current_user <> session_user "
                "or exists (select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) "
                "or exists (select from pg_prepared_statements) or exists (select from pg_listening_channels())"
            ).fetchall()
            assert left == (False,)


def test_a_session_that_is_busy_or_ended_is_not_used_again(few: Databases) -> None:
    with few.lend() as url:
        busy = psycopg.connect(url, autocommit=True)
        busy_pid = busy.info.backend_pid
        busy.pgconn.send_query(b"select pg_sleep(0.1)")
        busy.close()
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.info.backend_pid != busy_pid
            pid = connection.info.backend_pid
        with psycopg.connect(url, application_name="other", autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 60000)", [pid])
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.info.backend_pid != pid


def test_settings_for_new_sessions_hold_for_each_that_begins_after_them(few: Databases) -> None:
    with few.lend() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"alter database {connection.info.dbname} set work_mem = '5MB'".encode())
        with psycopg.connect(url) as connection:
            assert connection.execute("show work_mem").fetchall() == [("5MB",)]
