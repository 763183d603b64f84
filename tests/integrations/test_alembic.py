"""Alembic creates Fairlead's schema in an empty database, and autogenerate leaves it alone."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from fairlead.db import migrate
from fairlead.db.scratch import replace_database
from fairlead.errors import InvalidInput, SchemaOutdated
from fairlead.integrations.alembic import include_name, upgrade_schema
from tests.tables import each_case

pytestmark = pytest.mark.thorough

REVISIONS = Path(__file__).parents[2] / "examples" / "alembic_shop"


@pytest.fixture
def empty_url(server: str) -> Iterator[str]:
    """A database without Fairlead."""
    name = f"alembic_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} encoding 'UTF8' template template0".encode())
        yield replace_database(server, name)
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def config(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FAIRLEAD_DATABASE_URL", empty_url)
    config = Config()
    config.set_main_option("script_location", str(REVISIONS))
    return config


def to_sqlalchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def test_upgrade_head_creates_the_schema_and_is_repeated_without_harm(config: Config, empty_url: str) -> None:
    with pytest.raises(SchemaOutdated):
        asyncio.run(migrate.check(empty_url, "fairlead"))
    for _ in range(2):
        command.upgrade(config, "head")

        asyncio.run(migrate.check(empty_url, "fairlead"))
        command.check(config)
    command.downgrade(config, "base")
    asyncio.run(migrate.check(empty_url, "fairlead"))


@pytest.mark.thorough
def test_autogenerate_would_drop_the_tables_if_it_saw_them(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.upgrade(config, "head")
    monkeypatch.setattr("fairlead.integrations.alembic.include_name", lambda *_: True)

    with pytest.raises(CommandError, match="remove_table"):
        command.check(config)


def test_sql_for_later_is_refused(config: Config) -> None:
    with pytest.raises(InvalidInput, match="fairlead migrate up"):
        upgrade_schema(None)


def test_it_works_under_an_asynchronous_engine(empty_url: str) -> None:
    async def upgrade() -> list[list[str]]:
        engine = create_async_engine(to_sqlalchemy(empty_url))
        async with engine.connect() as connection:
            applied = [await connection.run_sync(upgrade_schema) for _ in range(2)]
        await engine.dispose()
        return applied

    assert asyncio.run(upgrade()) == [["Migration 0001 schema"], []]


def test_another_schema_and_another_address_can_be_named(empty_url: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(empty_url))
    with engine.connect() as connection:
        assert upgrade_schema(connection, database_url=empty_url, schema="jobs_of_shop")
    engine.dispose()

    asyncio.run(migrate.check(empty_url, "jobs_of_shop"))


@each_case(
    ("name", "kind", "parents", "included"),
    [
        ("fairlead", "schema", {}, False),
        (None, "schema", {}, True),
        ("jobs", "table", {"schema_name": "fairlead"}, False),
        ("jobs", "table", {"schema_name": None}, True),
    ],
)
def test_only_the_schema_of_fairlead_is_left_out(
    name: str | None,
    kind: str,
    parents: dict[str, str | None],
    included: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert include_name(name, kind, parents) is included
