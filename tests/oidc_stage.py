"""A world whose people sign in with a provider, and browsers that do it."""

import tomllib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI
from pytest import MonkeyPatch  # noqa: PT013
from starlette.routing import Mount

from fairlead import Fairlead
from fairlead.actions.rate_limits import RateBudget
from fairlead.db.tx import Tx
from fairlead.model.oidc.settings import read_oidc_settings
from fairlead.server import oidc
from fairlead.server.app import create_app
from fairlead.server.oidc import OidcSignIns
from tests import given
from tests.oidc_provider import CLIENT, SECRET, Provider, provider_on
from tests.server.world import World, world_on
from tests.waiting import SECONDS

HOME = "https://fairlead.test"
START = f"{HOME}/console/sign-in/with/work"
SESSION = "__Host-fairlead_session"
TABLE = """
[oidc.work]
label = "Work"
issuer = "{issuer}"
client_id = "{client}"
client_secret = "env:TEST_OIDC_SECRET"
role_claim = "groups"
tenant = "{tenant}"

[oidc.work.roles]
viewers = "viewer"
operators = "operator"
admins = "tenant_admin"
platform = "super_admin"
"""


@dataclass
class Browser:
    """A browser of one person: it keeps cookies, and follows no redirect by itself."""

    world: World
    client: httpx2.AsyncClient

    async def get(self, url: str, **more: Any) -> httpx2.Response:
        return await self.client.get(url, **more)

    async def begin(self, url: str = START) -> str:
        """Begin to sign in: where the provider's page is."""
        answer = await self.get(url)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    async def agree(self, url: str) -> str:
        """Go through the provider's page: where it sends the browser."""
        async with httpx2.AsyncClient(trust_env=False, timeout=SECONDS) as outside:
            answer = await outside.get(url)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    async def sign_in(self, url: str = START) -> httpx2.Response:
        """The whole way; the last answer."""
        return await self.get(await self.agree(await self.begin(url)))

    @property
    def is_signed_in(self) -> bool:
        return SESSION in self.client.cookies

    async def me(self) -> Any:
        return (await self.get(f"{HOME}/api/v1/me")).json()


@dataclass
class Stage:
    world: World
    provider: Provider

    def browser(self, **more: Any) -> Browser:
        transport = httpx2.ASGITransport(app=self.world.app, raise_app_exceptions=False)
        return Browser(self.world, httpx2.AsyncClient(transport=transport, trust_env=False, **more))

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        return self.world.transaction()

    async def values(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        async with self.world.fl.database.transaction() as tx:
            return [tuple(row) for row in await tx.values(sql, values)]

    async def run(self, sql: str, values: Any = ()) -> None:
        async with self.world.fl.database.transaction() as tx:
            await tx.run(sql, values)

    async def refused(self, answer: httpx2.Response, browser: Browser, *says: str, status: int = 403) -> None:
        """Nobody has signed in, and the page says why."""
        assert answer.status_code == status, answer.text
        for one in says:
            assert one in answer.text
        assert not browser.is_signed_in
        assert await self.values("select 1 from fairlead.sessions where revoked_at is null") == []


def settings_of(provider: Provider, more: str = "", table: str = TABLE) -> str:
    return table.format(issuer=provider.issuer, client=CLIENT, tenant=given.TENANT) + more


@asynccontextmanager
async def reset_stage(world: World, patch: MonkeyPatch) -> AsyncIterator[Stage]:
    """Another provider for a world that tests share; no user and no session is left."""
    async with provider_on() as provider:
        patch.setenv("TEST_OIDC_SECRET", SECRET)
        patch.setattr(oidc, "BEGUN_FROM_ADDRESS", RateBudget(100_000, 0.001))
        use_providers(world, settings_of(provider))
        stage = Stage(world, provider)
        try:
            yield stage
        finally:
            await stage.run("delete from fairlead.tokens where user_id is not null")
            for table in (
                "oidc_sign_ins",
                "oidc_logouts",
                "oidc_sessions",
                "identities",
                "sessions",
                "users",
            ):
                await stage.run(f"delete from fairlead.{table}")


def use_providers(world: World, document: str) -> None:
    """Give a world the providers of a fairlead.toml, as if it had been started with it."""
    found = OidcSignIns(world.fl, read_oidc_settings(tomllib.loads(document)))
    world.app.state.oidc = found
    [console] = [route.app for route in world.app.routes if isinstance(route, Mount)]
    assert isinstance(console, FastAPI)
    console.state.oidc = found


@asynccontextmanager
async def another_process(stage: Stage) -> AsyncIterator[Stage]:
    """Another server on the same database, with the same settings."""
    async with Fairlead(settings=stage.world.fl.settings, actor="tester") as fl:
        world = World(fl, create_app(fl), stage.world.client)
        use_providers(world, settings_of(stage.provider))
        yield Stage(world, stage.provider)


@asynccontextmanager
async def stage_on(
    database_url: str, patch: MonkeyPatch, folder: Path, *, document: str | None = None, **changes: Any
) -> AsyncIterator[Stage]:
    """`document` is the whole fairlead.toml, in which {issuer} is filled in."""
    async with provider_on() as provider:
        text = settings_of(provider) if document is None else settings_of(provider, table=document)
        (folder / "fairlead.toml").write_text(text)
        patch.setenv("FAIRLEAD_CONFIG", str(folder / "fairlead.toml"))
        patch.setenv("TEST_OIDC_SECRET", SECRET)
        async with world_on(database_url, **changes) as world:
            yield Stage(world, provider)
