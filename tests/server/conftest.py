"""Shared by all tests of the server: see world.py for what a World offers."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from fairlead.db.scratch import at_database
from fairlead.server import limits
from tests.server.world import Uncounted, World, world_on


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """An application over a database of the test's own; queue and record must agree at the end."""
    async with world_on(database_url) as made:
        yield made


@pytest.fixture(scope="module")
def module_url(server: str, template: str) -> Iterator[str]:
    """A database for all tests of a module."""
    name = f"module_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template}")
        yield at_database(server, name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="module")
async def shared_world(module_url: str) -> AsyncIterator[World]:
    """One world for all tests of a module that ask much and rely on little. Nobody is slowed down in it."""
    async with world_on(module_url) as made:
        made.app.state.gatekeeper.failures = Uncounted(made.fl)
        yield made


@pytest.fixture
def slow_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of failures that come back in minutes: a slow machine must not give a guesser one more try."""
    for name in ("FROM_ADDRESS", "AT_ACCOUNT_FROM_ADDRESS", "AT_ACCOUNT", "SIGN_INS_FROM_ADDRESS"):
        monkeypatch.setattr(limits, name, replace(getattr(limits, name), seconds=600.0))
