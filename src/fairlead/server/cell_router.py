"""Hands each request to the application of the cell in which its tenant lives.

The home cell's application gets a request first, unless the tenant was found in another cell before. An application
that finds the tenant to be elsewhere answers with TenantMoved; the router holds that answer back, and hands the request
to the cell that the directory names. With one database there is no directory, and the router does nothing.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import structlog
from fastapi import FastAPI
from starlette._utils import get_route_path
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import (
    CellUnreachable,
    FairleadError,
    LeaseLost,
    NotFound,
    TenantMoved,
    TenantMoving,
)
from fairlead.library.app import Fairlead
from fairlead.library.cells import LOOK_SECONDS, MOVE_WAIT_SECONDS
from fairlead.model.secrets.generated import read_tenant_id
from fairlead.placement import moving_error
from fairlead.server.all_cells import unreachable_error
from fairlead.server.auth import FROM_HOME, session_secret
from fairlead.server.handover import HANDOVER, CellHandover
from fairlead.server.live_sockets import LiveFeeds
from fairlead.server.problems import problem_response

log = structlog.get_logger(__name__)

# Any cell may have the user who signs in, or opens a link: a session cookie that the browser also sends says nothing.
SIGN_IN = (
    "/api/v1/login",
    "/api/v1/invitations/accept",
    "/api/v1/password-resets",
    "/api/v1/password-resets/confirm",
    "/console/sign-in",
    "/console/sign-in/code",
    "/console/invitation",
    "/console/forgot-password",
    "/console/reset-password",
)
# So may a sign-in with an identity provider; the home cell has those that are under way.
SIGN_IN_WITH = "/console/sign-in/with/"
# Messages with which a response begins.
BEGINNINGS = frozenset({"http.response.start", "websocket.http.response.start", "websocket.close"})


class CellApps:
    """The applications of the other cells, created for their first requests."""

    def __init__(self, create: Callable[[Fairlead], FastAPI]) -> None:
        self._create = create
        self._apps: dict[str, tuple[Fairlead, FastAPI]] = {}

    def __iter__(self) -> Iterator[FastAPI]:
        return iter([app for _, app in self._apps.values()])

    def find(self, member: Fairlead) -> FastAPI:
        """The application of a cell."""
        name = "" if member.cell is None else member.cell.name
        known = self._apps.get(name)
        if known is None or known[0] is not member:  # the cell was closed and opened again
            known = self._apps[name] = (member, self._create(member))
        return known[1]


async def find_other_feeds(fl: Fairlead, apps: CellApps) -> list[LiveFeeds]:
    """The live feeds of the other cells that can be reached."""
    found: list[LiveFeeds] = []
    for name in sorted(fl.cells.by_name):
        try:
            member = await fl.cells.member(name)
        except FairleadError as error:
            log.warning("cell_missing", cell=name, why=error.message)
            continue
        if member is not fl:
            found.append(apps.find(member).state.live)
    return found


class CellRouter:
    """Middleware of the home cell's application: finds the cell of each request."""

    def __init__(self, app: ASGIApp, fl: Fairlead, apps: CellApps) -> None:
        self._app = app
        self._fl = fl
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or not self._fl.is_open or not self._fl.cells:
            await self._app(scope, receive, send)
            return
        await _Request(self, scope, receive, send).answer()

    @property
    def fl(self) -> Fairlead:
        return self._fl

    def app_of(self, member: Fairlead) -> ASGIApp:
        """The application of a cell."""
        return self._app if member is self._fl else self._apps.find(member)


class _Request:
    """A request, and the cells that got it so far."""

    def __init__(self, router: CellRouter, scope: Scope, receive: Receive, send: Send) -> None:
        self._router = router
        self._cells = router.fl.cells
        self._scope = scope
        self._receive = receive
        self._send = send
        self._received: list[Message] = []
        self._redeemed: Any = None

    async def answer(self) -> None:
        """Answer the request in the right cell."""
        until = time.monotonic() + MOVE_WAIT_SECONDS
        member, found, held = self._first(), CellHandover(), list[Message]()
        # a tenant that moves to and fro must not keep a request here
        for _ in range(int(MOVE_WAIT_SECONDS / LOOK_SECONDS) + 2):
            found, held = await self._ask(member)
            if not held:
                return
            if not isinstance(found.refusal, TenantMoved | TenantMoving) or found.tenant is None:
                break
            is_late = time.monotonic() > until
            try:
                there = await self._cells.find(found.tenant)
            except FairleadError as error:
                await self._refuse_unreachable(error)
                return
            if there is member:
                if is_late:
                    break
                await asyncio.sleep(LOOK_SECONDS)
            member = there
        if found.is_for_all:
            await self._search(member, found, held)
            return
        await self._give_up(found, held)

    def _first(self) -> Fairlead:
        """The cell in which the tenant was found last; else home."""
        path = get_route_path(self._scope)
        connection = HTTPConnection(self._scope)
        if path in SIGN_IN or path.startswith(SIGN_IN_WITH):
            return self._router.fl
        if path.startswith("/hooks/"):
            return self._cells.find_known(path.split("/")[2])
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        secret = connection.query_params.get("ticket") or (
            text.strip() if scheme else session_secret(connection)
        )
        tenant_id = read_tenant_id(secret or "")
        return self._router.fl if tenant_id is None else self._cells.find_known(str(tenant_id))

    async def _search(self, first: Fairlead, refused: CellHandover, held: list[Message]) -> None:
        """Ask the other cells for what `first` does not know: a super admin's request names no tenant."""
        missing = []
        await self._cells.refresh()
        for name in sorted(self._cells.by_name):
            try:
                member = await self._cells.member(name)
            except FairleadError as error:
                log.warning("cell_missing", cell=name, why=error.message)
                missing.append(name)
                continue
            if member is first:
                continue
            found, again = await self._ask(member)
            if not again:
                return
            if isinstance(found.refusal, CellUnreachable):
                missing.append(name)
        if missing:  # it may be there
            await self._respond(unreachable_error(missing))
        else:
            await self._give_up(refused, held)

    async def _give_up(self, refused: CellHandover, held: list[Message]) -> None:
        """Send the answer that was held back; that the tenant moved is no answer for a caller, which knows no cells."""
        if isinstance(refused.refusal, TenantMoved):
            await self._respond(moving_error(refused.tenant))
        else:
            await self._forward(held)

    async def _ask(self, member: Fairlead) -> tuple[CellHandover, list[Message]]:
        """Let a cell answer. Messages if another cell may have to: then nothing was sent."""
        handover = CellHandover(redeemed=self._redeemed)
        scope = {**self._scope, HANDOVER: handover, FROM_HOME: self._is_from_home(member)}
        held: list[Message] = []
        position = 0

        async def receive() -> Message:
            nonlocal position
            if position == len(self._received):
                self._received.append(await self._receive())
            position += 1
            return self._received[position - 1]

        async def send(message: Message) -> None:
            if message["type"] in BEGINNINGS and not held and _is_elsewhere(handover):
                handover.is_handed_on = True
            if handover.is_handed_on:
                held.append(message)
            else:
                await self._send(message)

        app = self._router.app_of(member)
        await app(scope, receive, send)
        self._redeemed = handover.redeemed
        return handover, held

    def _is_from_home(self, member: Fairlead) -> bool:
        """Whether the caller is one whom only the home cell knows: its secret names no tenant."""
        if member is self._router.fl:
            return False
        connection = HTTPConnection(self._scope)
        scheme, _, text = connection.headers.get("authorization", "").partition(" ")
        secret = text.strip() if scheme else session_secret(connection)
        return secret is not None and read_tenant_id(secret) is None

    async def _refuse_unreachable(self, error: FairleadError) -> None:
        log.warning("cell_missing", why=error.message)
        await self._respond(unreachable_error())

    async def _respond(self, error: CellUnreachable | TenantMoving) -> None:
        answer = problem_response(error, {"Retry-After": str(error.retry_after)})
        if self._scope["type"] == "websocket":
            await self._forward([{"type": "websocket.close", "code": 1013, "reason": "try again later"}])
        else:
            await answer(self._scope, self._receive, self._send)

    async def _forward(self, held: Iterable[Message]) -> None:
        for message in held:
            await self._send(message)


def _is_elsewhere(handover: CellHandover) -> bool:
    """Whether another cell may have a better answer than this refusal."""
    refusal = handover.refusal
    if isinstance(refusal, TenantMoved | TenantMoving):
        return handover.tenant is not None or handover.is_for_all
    is_unknown = refusal is not None and refusal.http_status == 404 and not isinstance(refusal, NotFound)
    return handover.is_for_all and (is_unknown or isinstance(refusal, LeaseLost | CellUnreachable))
