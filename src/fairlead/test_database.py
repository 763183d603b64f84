"""A Fairlead on a temporary database, for tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import replace
from functools import cache
from typing import Any, overload
from uuid import uuid4

from fairlead import sync
from fairlead.actions.catalog import Catalog
from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import scratch_database, scratch_folder
from fairlead.errors import InvalidInput
from fairlead.library.app import Fairlead
from fairlead.library.synchronous import LoopThread
from fairlead.settings import Settings

TENANT = "test"


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL in a temporary folder, removed at the end; yields its URL.

    The folder is in memory if there is enough of it and TMPDIR is not set.
    """
    with scratch_folder() as folder, EmbeddedPostgres(folder / "data") as embedded:
        yield embedded.url


@overload
def fairlead(
    fl: Fairlead | None = None,
    *,
    tenant: str | None = TENANT,
    server_url: str | None = None,
    database_url: str | None = None,
) -> AbstractAsyncContextManager[Fairlead]: ...


@overload
def fairlead(
    fl: sync.Fairlead,
    *,
    tenant: str | None = TENANT,
    server_url: str | None = None,
    database_url: str | None = None,
) -> AbstractContextManager[sync.Fairlead]: ...


def fairlead(
    fl: Any = None,
    *,
    tenant: str | None = TENANT,
    server_url: str | None = None,
    database_url: str | None = None,
) -> Any:
    """Open `fl` (or a new Fairlead) on a test database, with a tenant; its settings are restored afterwards.

    By default the database is on a new PostgreSQL. With `server_url` it is a new database on that server, dropped at
    the end. With `database_url` it is that database, which is migrated and not cleaned up.
    Use `with` for a synchronous `fl`, and `async with` otherwise.
    """
    if server_url is not None and database_url is not None:
        raise InvalidInput("Give server_url or database_url, not both.")
    if isinstance(fl, sync.Fairlead):
        return _open_sync(fl, tenant, _use_test_database(fl.inner, server_url, database_url))
    fl = Fairlead(settings=Settings(), actor="test") if fl is None else fl
    return _open_async(fl, tenant, _use_test_database(fl, server_url, database_url))


@asynccontextmanager
async def _open_async(
    fl: Fairlead, tenant: str | None, lent: AbstractAsyncContextManager[None]
) -> AsyncIterator[Fairlead]:
    async with lent, fl:
        if tenant is not None:
            await fl.add_tenant(tenant, exist_ok=True)
        yield fl


@contextmanager
def _open_sync(
    fl: sync.Fairlead, tenant: str | None, lent: AbstractAsyncContextManager[None]
) -> Iterator[sync.Fairlead]:
    with LoopThread("fairlead-testing") as aside, aside.enter_on_loop(lent), fl:
        if tenant is not None:
            fl.add_tenant(tenant, exist_ok=True)
        yield fl


@asynccontextmanager
async def _use_test_database(
    fl: Fairlead, server_url: str | None, database_url: str | None
) -> AsyncIterator[None]:
    """Set a test database in the settings of `fl` within the block."""
    if fl.is_open:  # the test would use its database
        raise InvalidInput(
            "This Fairlead is open already: close it first, so that it can use the test's database."
        )
    async with AsyncExitStack() as stack:
        url = database_url or await _new_database(stack, server_url)
        await migrate.up(url, fl.settings.schema)
        with _use_settings(fl, replace(fl.settings, database_url=url, direct_url=None)):
            yield


def fixture(
    fl: Fairlead | sync.Fairlead | None = None, *, tenant: str | None = TENANT, server_url: str | None = None
) -> Any:
    """A pytest fixture that opens `fl` on a new database for each test. It needs pytest-asyncio unless `fl` is synchronous.

    All fixtures share one PostgreSQL, started by the first test that needs it and stopped with pytest.
    """
    if isinstance(fl, sync.Fairlead):
        return _fixture_sync(fl, tenant, server_url)
    import pytest  # noqa: PLC0415 - only callers of this function need it
    import pytest_asyncio  # noqa: PLC0415

    @pytest_asyncio.fixture
    async def open_fairlead(request: pytest.FixtureRequest) -> AsyncIterator[Fairlead]:
        server = server_url or await asyncio.to_thread(shared_postgres, request.config)
        async with fairlead(fl, tenant=tenant, server_url=server) as ready:
            yield ready

    return open_fairlead


def _fixture_sync(fl: sync.Fairlead, tenant: str | None, server_url: str | None) -> Any:
    import pytest  # noqa: PLC0415

    @pytest.fixture
    def open_fairlead(request: pytest.FixtureRequest) -> Iterator[sync.Fairlead]:
        server = server_url or shared_postgres(request.config)
        with fairlead(fl, tenant=tenant, server_url=server) as ready:
            yield ready

    return open_fairlead


def shared_postgres(config: Any) -> str:
    """The shared PostgreSQL of this pytest run; pytest stops it at the end."""
    key = _postgres_key()
    if key not in config.stash:
        held = ExitStack()
        config.stash[key] = held.enter_context(postgres())
        config.add_cleanup(held.close)
    return str(config.stash[key])


@cache
def _postgres_key() -> Any:
    import pytest  # noqa: PLC0415

    return pytest.StashKey[str]()


async def _new_database(stack: AsyncExitStack, server_url: str | None) -> str:
    if server_url is None:
        held = ExitStack()
        stack.push_async_callback(asyncio.to_thread, held.close)
        return await asyncio.to_thread(held.enter_context, postgres())
    return await stack.enter_async_context(scratch_database(server_url, f"fairlead_test_{uuid4().hex[:12]}"))


@contextmanager
def _use_settings(fl: Fairlead, settings: Settings) -> Iterator[None]:
    """Use these settings within the block, with a new catalog: the cached one belongs to another database."""
    before = fl.settings, fl.catalog
    fl.settings, fl.catalog = settings, Catalog(settings)
    try:
        yield
    finally:
        fl.settings, fl.catalog = before
