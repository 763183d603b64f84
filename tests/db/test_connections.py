"""What `tx=` takes and what it refuses, beyond the plain connection of each driver."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import django.db
import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import scoped_session, sessionmaker

from fairlead import Fairlead, sync
from fairlead.errors import ConnectionNotSupported, NotOpen
from tests import drivers, given
from tests.drivers import NOWHERE, keywords
from tests.given import TENANT

PAYLOAD = {"name": "Ada é 数 😀 \\ \" '"}


@pytest.fixture
def face() -> sync.Fairlead:
    """The synchronous face, never opened."""
    return sync.Fairlead(settings=NOWHERE, actor="shop")


@pytest.fixture
def async_face() -> Fairlead:
    """The asynchronous face, never opened."""
    return Fairlead(settings=NOWHERE, actor="shop")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=NullPool
    )
    yield made
    made.dispose()


@pytest.fixture
async def async_engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(database_url)

    made = create_async_engine("postgresql+psycopg://", async_creator=connect, poolclass=NullPool)
    yield made
    await made.dispose()


async def payload_of(fl: Fairlead, job_id: Any) -> Any:
    return (await fl.read(job_id)).payload


# Taken


@pytest.mark.parametrize(
    "options",
    [
        {"cursor_factory": psycopg.RawCursor},
        {"cursor_factory": psycopg.ClientCursor},
        {"row_factory": dict_row},
        {"autocommit": True},
        {"prepare_threshold": 0},
        {"client_encoding": "sql_ascii"},
        {"client_encoding": "latin1"},
    ],
    ids=["raw-cursor", "client-cursor", "dict-rows", "autocommit", "prepared-at-once", "sql-ascii", "latin1"],
)
async def test_any_way_to_set_up_a_psycopg_connection_will_do(
    fl: Fairlead, face: sync.Fairlead, database_url: str, options: dict[str, Any]
) -> None:
    with psycopg.connect(database_url, **options) as connection:
        job = face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=connection)

    assert await payload_of(fl, job.id) == PAYLOAD


async def test_an_async_connection_with_raw_cursors_will_do(
    fl: Fairlead, async_face: Fairlead, database_url: str
) -> None:
    connect = psycopg.AsyncConnection.connect
    async with await connect(database_url, cursor_factory=psycopg.AsyncRawCursor) as connection:
        job = await async_face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=connection)

    assert await payload_of(fl, job.id) == PAYLOAD


@pytest.mark.parametrize("name", ["", "on-the-server"])
def test_the_callers_cursor_keeps_its_rows(face: sync.Fairlead, database_url: str, name: str) -> None:
    with psycopg.connect(database_url) as connection:
        cursor = connection.cursor(name) if name else connection.cursor()
        with cursor:
            cursor.execute("select generate_series(1, 3)")
            assert cursor.fetchone() == (1,)

            face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=cursor)

            assert cursor.fetchall() == [(2,), (3,)]


def test_a_pipeline_is_joined(face: sync.Fairlead, database_url: str) -> None:
    with psycopg.connect(database_url) as connection, connection.pipeline():
        mine = connection.execute("select 1")
        job = face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=connection)

        assert not job.deduplicated
        assert mine.fetchall() == [(1,)]


async def test_a_connection_out_of_a_pool_is_joined(
    fl: Fairlead, face: sync.Fairlead, database_url: str
) -> None:
    with (
        psycopg_pool.ConnectionPool(database_url, min_size=1, open=True) as pool,
        pool.connection() as connection,
    ):
        job = face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=connection)

    assert await payload_of(fl, job.id) == PAYLOAD


async def test_a_scoped_session_is_joined(fl: Fairlead, face: sync.Fairlead, engine: Engine) -> None:
    session = scoped_session(sessionmaker(engine))
    job = face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=session)
    session.commit()
    session.remove()

    assert await payload_of(fl, job.id) == PAYLOAD


async def test_an_async_scoped_session_is_joined(
    fl: Fairlead, async_face: Fairlead, async_engine: AsyncEngine
) -> None:
    session = async_scoped_session(async_sessionmaker(async_engine), asyncio.current_task)
    job = await async_face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=session)
    await session.commit()
    await session.remove()

    assert await payload_of(fl, job.id) == PAYLOAD


async def test_the_asynchronous_face_joins_a_synchronous_connection(
    fl: Fairlead, async_face: Fairlead, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        [job] = await async_face.enqueue_many([given.request(payload=PAYLOAD)], tx=connection)

    assert await payload_of(fl, job.id) == PAYLOAD


async def test_a_job_function_of_the_synchronous_face_joins_without_await(
    fl: Fairlead, face: sync.Fairlead, database_url: str
) -> None:
    @face.job(key="greet")
    def greet(name: str) -> str:
        return f"Hello, {name}"

    with psycopg.connect(database_url) as connection:
        first = greet.options(dedupe_key="one", priority=3).enqueue(tenant=TENANT, name="Ada", tx=connection)
        again = greet.options(dedupe_key="one").enqueue(tenant=TENANT, name="Ada", tx=connection)
        [other] = face.enqueue_many([greet.with_arguments(tenant=TENANT, name="Bob")], tx=connection)

    assert greet("Ada") == "Hello, Ada"
    assert (again.id, again.deduplicated) == (first.id, True)
    assert (await fl.read(first.id)).priority == 3
    assert await payload_of(fl, other.id) == {"name": "Bob"}


# Refused


@asynccontextmanager
async def strangers(database_url: str, engine: Engine, async_engine: AsyncEngine) -> AsyncIterator[list[Any]]:
    """What is no transaction of PostgreSQL's, though some of it could run a statement."""
    connection = sqlite3.connect(":memory:")
    pool = psycopg_pool.ConnectionPool(database_url, open=False)
    try:
        async with asyncpg.create_pool(**keywords(database_url), min_size=1, max_size=1) as asyncpg_pool:
            yield [
                connection,
                database_url,
                object(),
                psycopg,
                pool,
                engine,
                async_engine,
                sessionmaker(engine),
                asyncpg_pool,
            ]
    finally:
        connection.close()


async def test_what_is_not_a_connection_is_refused_and_nothing_enqueued(
    fl: Fairlead, face: sync.Fairlead, database_url: str, engine: Engine, async_engine: AsyncEngine
) -> None:
    async with strangers(database_url, engine, async_engine) as things:
        for thing in things:
            with pytest.raises(ConnectionNotSupported, match="; got ") as refusal:
                await fl.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=thing)
            assert refusal.value.code == "connection_not_supported"
            with pytest.raises(ConnectionNotSupported):
                face.enqueue_many([given.request()], tx=thing)

    assert await given.count(fl, "jobs") == 0


async def test_a_django_connection_to_another_database_is_refused(face: sync.Fairlead) -> None:
    with pytest.raises(ConnectionNotSupported, match="Django connection to PostgreSQL"):
        face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=django.db.connections)


@pytest.mark.parametrize("driver", drivers.ASYNCHRONOUS)
async def test_the_synchronous_face_refuses_what_has_to_be_awaited(
    face: sync.Fairlead, database_url: str, driver: str
) -> None:
    async with drivers.caller(driver, database_url) as caller:
        with pytest.raises(ConnectionNotSupported, match="use the asynchronous Fairlead"):
            face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=caller.tx)


async def test_the_synchronous_face_refuses_an_async_scoped_session(
    face: sync.Fairlead, async_engine: AsyncEngine
) -> None:
    session = async_scoped_session(async_sessionmaker(async_engine), asyncio.current_task)
    with pytest.raises(ConnectionNotSupported, match="use the asynchronous Fairlead"):
        face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=session)


async def test_without_a_connection_a_face_that_is_not_open_says_so(
    face: sync.Fairlead, async_face: Fairlead
) -> None:
    with pytest.raises(NotOpen):
        face.enqueue("greet", tenant=TENANT, payload=PAYLOAD)
    with pytest.raises(NotOpen):
        await async_face.enqueue("greet", tenant=TENANT, payload=PAYLOAD)


def test_a_serialization_failure_without_a_dedupe_key_stays_the_drivers_own(
    face: sync.Fairlead, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("""
            create function fail() returns trigger language plpgsql as
                $$ begin raise exception 'retry, please' using errcode = 'serialization_failure'; end $$;
            create trigger fail before insert on fairlead.job_records for each row execute function fail();
        """)
    with psycopg.connect(database_url) as connection:
        with pytest.raises(psycopg.errors.SerializationFailure):
            face.enqueue("greet", tenant=TENANT, payload=PAYLOAD, tx=connection)
        connection.rollback()
