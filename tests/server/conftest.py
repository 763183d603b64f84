"""Shared by all tests of the server: see world.py for what a World offers."""

import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.db.tx import Tx
from fairlead.server import live_feed, live_sockets, rate_limits
from tests.databases import Databases
from tests.oidc_stage import Stage, reset_stage
from tests.server.cells import world_in_cell
from tests.server.world import Uncounted, World, world_on
from tests.waiting import SECONDS


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """An application over a database of the test's own; queue and record must agree at the end."""
    # `make cells`: the tenants live in another cell than the one that is asked
    build = world_in_cell if "FAIRLEAD_TEST_CELLS" in os.environ else world_on
    async with build(database_url) as made:
        yield made


@pytest.fixture(scope="module")
def module_url(databases: Databases) -> Iterator[str]:
    """A database for all tests of a module."""
    with databases.lend() as url:
        yield url


@pytest.fixture(scope="module")
async def shared_world(module_url: str) -> AsyncIterator[World]:
    """One world for all tests of a module that ask much and rely on little. Nobody is slowed down in it."""
    async with world_on(module_url) as made:
        made.app.state.gatekeeper.failures = Uncounted(made.fl)
        yield made


@pytest.fixture
async def stage(shared_world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    """A provider with which people sign in to the world of the module, which has no users before and after."""
    async with reset_stage(shared_world, monkeypatch) as opened:
        yield opened


@pytest.fixture
def slow_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of failures that come back in minutes: a slow machine must not give a guesser one more try."""
    for name in ("FROM_ADDRESS", "AT_ACCOUNT_FROM_ADDRESS", "AT_ACCOUNT", "SIGN_INS_FROM_ADDRESS"):
        monkeypatch.setattr(rate_limits, name, replace(getattr(rate_limits, name), seconds=600.0))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent to the database from now on."""
    sent: list[str] = []
    prepare = Tx._text

    def note(tx: Tx, query: str) -> Any:
        sent.append(query)
        return prepare(tx, query)

    monkeypatch.setattr(Tx, "_text", note)
    return sent


@pytest.fixture
def patient_feeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Live feeds that wait for a busy machine, also for a commit that takes long: what they miss is not told one by one."""
    for name in ("FIRST_LOOK_SECONDS", "OTHER_CELLS_SECONDS"):
        monkeypatch.setattr(live_sockets, name, SECONDS)
    for module in (live_feed, live_sockets):
        monkeypatch.setattr(module, "OVERLAP", timedelta(seconds=SECONDS))
