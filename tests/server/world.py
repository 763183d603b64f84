"""A control plane to test: an application over a fresh database, two tenants, and tokens of everybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
from fastapi import FastAPI

from fairlead import Fairlead, Settings
from fairlead.actions import access, passwords, user_sessions
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from fairlead.server.app import bind, create_app, create_server
from fairlead.server.auth import COOKIE
from fairlead.server.problems import PREFIX
from fairlead.server.rate_limits import CountedFailure, FailureLimiter
from fairlead.store import access as secrets
from fairlead.store import tenants as stored_tenants
from tests import given

BASE = "http://fairlead.test"
PASSWORD = "correct horse battery staple"  # noqa: S105
# Roles of one tenant, and two tokens of its that are not good any more. A super admin has no tenant.
OF_A_TENANT = ("viewer", "operator", "tenant_admin", "application", "worker", "agent", "expired", "revoked")


@dataclass
class World:
    """The application, whom it knows, and a client that calls it in this process."""

    fl: Fairlead
    app: FastAPI
    client: httpx2.AsyncClient
    tenants: dict[str, UUID] = field(default_factory=dict)  # by slug
    hosts: dict[str, UUID] = field(default_factory=dict)  # by tenant's slug
    secrets: dict[tuple[str | None, str], str] = field(default_factory=dict)
    token_ids: dict[tuple[str | None, str], UUID] = field(default_factory=dict)

    def headers(self, who: str | None, tenant: str | None = given.TENANT, **more: str) -> dict[str, str]:
        """Authorization of a role (or "expired", "revoked"); of nobody for None."""
        owner = None if who == "super_admin" else tenant
        token = {} if who is None else {"Authorization": f"Bearer {self.secrets[owner, who]}"}
        return {**token, **{name.replace("_", "-"): value for name, value in more.items()}}

    def live_scope(self, headers: dict[str, str], query: str = "") -> dict[str, Any]:
        """The scope of a live socket, as a server passes it to the application."""
        path = f"{PREFIX}/live"
        return {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "ws",
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("fairlead.test", 80),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
            "state": {},
        }

    async def call(
        self,
        method: str,
        path: str,
        *,
        who: str | None = "operator",
        tenant: str | None = given.TENANT,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx2.Response:
        """Ask as somebody; `path` is below /api/v1 unless it is one of the few outside, with a full address."""
        url = path if path.startswith("http") else BASE + PREFIX + path
        return await self.client.request(
            method, url, headers={**self.headers(who, tenant), **(headers or {})}, **more
        )

    async def status(self, *args: Any, **more: Any) -> int:
        """Only the status of a call."""
        return (await self.call(*args, **more)).status_code

    async def refusal(self, *args: Any, **more: Any) -> tuple[int, str]:
        """The status and the code of a call that is refused."""
        answer = await self.call(*args, **more)
        return answer.status_code, answer.json()["code"]

    def transaction(self) -> AbstractAsyncContextManager[Tx]:
        return self.fl.database.transaction()

    async def signed_in(self, role: Role = Role.OPERATOR, tenant: str | None = given.TENANT) -> str:
        """The cookie header of the user of this role who signed in; made if need be."""
        owner = None if role is Role.SUPER_ADMIN else self.tenants[str(tenant)]
        email = f"{role}.{tenant}@fairlead.test"
        hashed = await _hash()
        async with self.fl.database.transaction() as tx:
            await secrets.add_user(
                tx, tenant_id=owner, email=email, password_hash=hashed, role=role, created_by="tester"
            )
            [user] = await secrets.find_credentials(tx, email)
            begun = await user_sessions.start_session(tx, user, seconds=600)
            assert begun is not None
        return f"{COOKIE}={begun[1]}"


async def _hash() -> str:
    """Of everybody's password: to make one takes long, on purpose."""
    if not _HASHED:
        _HASHED.append(await passwords.hash_password(PASSWORD))
    return _HASHED[0]


class Uncounted(FailureLimiter):
    """Fails to notice failures: for tests that make many."""

    async def check(self, tx: Tx, counted: list[CountedFailure]) -> None:
        pass

    async def count(self, counted: list[CountedFailure]) -> None:
        pass


_HASHED: list[str] = []


@asynccontextmanager
async def world_on(database_url: str, **changes: Any) -> AsyncIterator[World]:
    """A world on a copy of the template; `changes` are settings. Rates are high: tests ask a lot at once.

    Nothing is maintained by itself: tests age rows by hand and look at them.
    """
    plenty = Settings(
        database_url=database_url,
        rate_limit_per_second=1e6,
        rate_limit_burst=1_000_000,
        maintenance=False,
        max_sockets_per_caller=500,
    )
    settings = replace(plenty, **changes)
    async with Fairlead(settings=settings, actor="tester") as fl:
        app = create_app(fl)
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport) as client:
            world = World(fl, app, client)
            async with fl.database.transaction() as tx:
                await _meet(tx, world)
            yield world
        await given.no_inconsistencies(fl.database)


@asynccontextmanager
async def listening(world: World) -> AsyncIterator[int]:
    """A server for the world, in this process; its port."""
    socket = bind("127.0.0.1", 0)
    server = create_server(world.app)
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    await server.up.wait()
    try:
        yield socket.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def populate(database_url: str) -> None:
    """Give everybody a token in a database that is to be copied: worlds on its copies find them there."""
    async with world_on(database_url) as world:
        for name in ("tenants", "hosts", "secrets", "token_ids"):
            _POPULATED[name] = getattr(world, name)


_POPULATED: dict[str, dict[Any, Any]] = {}


async def _meet(tx: Tx, world: World) -> None:
    """Make the people of a world, unless its database was copied with them."""
    known = list(_POPULATED.get("token_ids", {}).values())
    if not await tx.values("select 1 from fairlead.tokens where id = any(%s) limit 1", [known]):
        await _people(tx, world)
        return
    for name, values in _POPULATED.items():
        getattr(world, name).update(values)


async def _people(tx: Tx, world: World) -> None:
    world.tenants.update(await stored_tenants.get_ids(tx, [given.TENANT, given.OTHER]))
    await _token(tx, world, None, "super_admin", Role.SUPER_ADMIN)
    await _token(tx, world, None, "worker", Role.WORKER)
    for slug in world.tenants:
        world.hosts[slug] = await given.add_host(tx, world.tenants[slug])
        for name in OF_A_TENANT:
            role = Role.TENANT_ADMIN if name in ("expired", "revoked") else Role(name)
            await _token(tx, world, slug, name, role)


async def _token(tx: Tx, world: World, slug: str | None, name: str, role: Role) -> None:
    made = await access.create_token(
        tx,
        given.TESTER,
        name=f"{slug or 'all'}.{name}",
        role=role,
        tenant_id=world.tenants[slug] if slug else None,
        host_id=world.hosts[str(slug)] if role is Role.AGENT else None,
        expires_at=datetime.now(UTC) - timedelta(hours=1) if name == "expired" else None,
    )
    if name == "revoked":
        await access.revoke_token(tx, given.TESTER, made.token.id)
    world.secrets[slug, name] = made.secret
    world.token_ids[slug, name] = made.token.id
