"""Authentication by token or session, and the permission that each route requires."""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import structlog
from fastapi import APIRouter, FastAPI, Request
from fastapi.datastructures import DefaultPlaceholder
from fastapi.responses import Response
from fastapi.routing import APIRoute
from msgspec.structs import replace
from starlette.requests import HTTPConnection

from fairlead.actions import access, address_lists, tenants, user_sessions
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import (
    AddressNotAllowed,
    BodyTooLarge,
    ContentTypeUnsupported,
    CrossSite,
    FairleadError,
    Fault,
    Forbidden,
    InvalidInput,
    SecondFactorSetupRequired,
    TenantMoved,
    TenantMoving,
    Unauthenticated,
)
from fairlead.library.app import Fairlead
from fairlead.model.access import (
    ACCESS_CHANGED,
    Permission,
    Principal,
    Role,
    missing_permission_error,
)
from fairlead.model.address_list import AddressList, require_allowed
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.generated import hash_secret, read_tenant_id
from fairlead.placement import moved_error
from fairlead.server.all_cells import CellReply, ask_cells, missing_cells
from fairlead.server.client_addresses import client_address
from fairlead.server.handover import find_handover, note_tenant
from fairlead.server.large_bodies import SlicedRequest
from fairlead.server.left_requests import go_on_without_client
from fairlead.server.problems import route_of
from fairlead.server.rate_limits import (
    CallerLimiter,
    CountedFailure,
    FailureLimiter,
    address_failures,
)
from fairlead.server.request_turns import own_request
from fairlead.server.sliced_pages import is_page, respond_in_slices
from fairlead.server.views import is_record, view_of
from fairlead.settings import Settings

log = structlog.get_logger(__name__)

T = TypeVar("T")

COOKIE = "fairlead_session"
# Browsers accept a __Host- cookie only over TLS and only from this host.
HOST_COOKIE = "__Host-fairlead_session"
# Well below the five seconds within which a revocation takes effect in every process.
REMEMBER_SECONDS = 2.0
MOST_REMEMBERED = 10_000
# How often the caller of a request that lasts long is authenticated again.
CHECK_SECONDS = 2.0
# How often a principal's refusals because of its address are audited.
AUDIT_SECONDS = 60.0
# The largest body of an unauthenticated request.
MOST_PUBLIC_BODY_BYTES = 65_536
# Scope key: the requirement that admitted the caller, and the caller.
ADMITTED = "fairlead.admitted"
# Scope key: the tenant that a console page's URL names; API clients send the header X-Tenant.
CHOSEN_TENANT = "fairlead.tenant"
# Scope key: the application of another cell authenticates the caller in the home cell.
FROM_HOME = "fairlead.from_home"
# Scope key: the route belongs to the set-up of a second factor.
DURING_SETUP = "fairlead.during_setup"
# Scope key: the principal whose sign-in was refused because of the address.
REFUSED_ADDRESS = "fairlead.refused_address"
# Header of a merged response: the cells that are missing in it.
MISSING_CELLS = "X-Missing-Cells"
# Header of a refresh: the live parts of a console page.
LIVE_PARTS = "x-live-parts"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Caller(msgspec.Struct, frozen=True):
    """An authenticated HTTP client: the principal and its tenant (None: a super admin without X-Tenant)."""

    fl: Fairlead
    principal: Principal
    ip: str | None
    token_id: UUID | None = None
    # whether the request may change something: its method is not GET or HEAD
    writes: bool = True
    # the home cell, if the caller was authenticated there and `fl` is another cell
    home: Fairlead | None = None
    # the cells that are missing in a merged response, because they cannot be reached
    missing: list[str] = msgspec.field(default_factory=list)

    @property
    def is_for_all_cells(self) -> bool:
        """Whether the response is about all tenants, of several cells."""
        return self.principal.tenant_id is None and self.fl.cell is None and bool(self.fl.cells)

    async def visit_cells(self) -> "AsyncIterator[Caller]":
        """The caller in its cell; a super admin without a tenant in each cell, one after the other."""
        if not self.is_for_all_cells:
            yield self
            return
        await self.fl.cells.refresh()
        for name in sorted(self.fl.cells.by_name):
            try:
                member = await self.fl.cells.member(name)
            except FairleadError as error:
                log.warning("cell_missing", cell=name, why=error.message)
                self.missing.append(name)
                continue
            yield self if member is self.fl else replace(self, fl=member, home=self.fl)

    async def ask_cells(self, work: Callable[[Tx, str], Awaitable[T]]) -> list[CellReply[T]]:
        """Run `work` in a transaction of each cell, with the cell's name; the response names those that are missing."""
        acting = TransactionIdentity(None, self.ip, self.principal.id, self.writes)
        answers = await ask_cells(self.fl, acting, work)
        self.missing.extend(name for name in missing_cells(answers) if name not in self.missing)
        return answers

    @property
    def tenant_id(self) -> UUID | None:
        return self.principal.tenant_id

    @property
    def tenant(self) -> UUID:
        """The tenant that the request is for, or InvalidInput."""
        if self.principal.tenant_id is None:
            raise InvalidInput(
                "Name the tenant that this is for, with the header X-Tenant: <id or slug>.",
                [Fault("X-Tenant", "is required")],
            )
        return self.principal.tenant_id

    @asynccontextmanager
    async def transaction(self, *, as_system: bool = False) -> AsyncIterator[Tx]:
        """Open a transaction that sees the caller's tenant; with `as_system`, every tenant's rows."""
        acting = TransactionIdentity(
            None if as_system else self.principal.tenant_id, self.ip, self.principal.id, self.writes
        )
        async with self.fl.database.transaction(acting) as tx:
            yield tx


class Gatekeeper:
    """Authenticates callers, caches valid tokens briefly, and limits failed attempts."""

    def __init__(self, fl: Fairlead, home: "Gatekeeper | None" = None) -> None:
        """`home` is that of the home cell, if `fl` is another: it knows the super admins, and counts all failures."""
        self._fl = fl
        self._home = home
        self._known: dict[bytes, tuple[float, Principal, UUID]] = {}
        # how often the cache was dropped: a token that was read before is not cached after
        self._drops = 0
        # when a refusal of an address was last audited, by principal
        self._refused_at: dict[UUID | None, float] = {}
        self._requests = CallerLimiter(
            fl,
            kind="tenant",
            refusal="Too many requests",
            refusal_of_tenant="Too many requests of all tokens and users of this tenant",
        )
        self.failures: FailureLimiter = FailureLimiter(fl) if home is None else home.failures
        fl.commit_hooks.add(ACCESS_CHANGED, self.forget)

    async def caller(
        self, connection: HTTPConnection, *, everywhere: bool = False, again: bool = False
    ) -> Caller:
        """Authenticate a request, or raise Unauthenticated. With `everywhere`, the tenant of a super admin may live in any cell.

        With `again` the request was authenticated before, and counts neither for the rate limits nor as a use of the session.
        """
        if self._home is not None and connection.scope.get(FROM_HOME):
            principal, token_id = await self._home.identify(connection, again=again)
            # the cell does not know the user
            principal, home = replace(principal, user_id=None), self._home.fl
        else:
            principal, token_id = await self.identify(connection, again=again)
            home = None
        caller = Caller(
            self._fl, principal, client_address(connection), token_id, may_write(connection), home
        )
        own_request(principal.tenant_id, principal.tenant_weight)
        caller = await self._choose_tenant(connection, caller, everywhere=everywhere)
        own_request(caller.tenant_id, principal.tenant_weight)
        if (handover := find_handover(connection.scope)) is not None:
            handover.tenant = None if caller.tenant_id is None else str(caller.tenant_id)
            handover.is_for_all = caller.tenant_id is None
        return caller

    async def identify(
        self, connection: HTTPConnection, *, again: bool = False
    ) -> tuple[Principal, UUID | None]:
        """The principal of a request and the id of its token, or Unauthenticated; `again` as for `caller`."""
        scheme, _, text = (read_single_header(connection, "authorization") or "").partition(" ")
        if scheme:
            principal, token_id = await self._authenticate_token(connection, scheme, text.strip())
            await self._check_address(connection, principal)
            if not again:
                await self._requests.take(str(token_id), principal.tenant_id)
            return principal, token_id
        if secret := session_secret(connection):
            signed_in = await self.signed_in(connection, secret, is_use=is_use(connection) and not again)
            if signed_in is not None:
                require_same_site(connection)
                await self._check_address(connection, signed_in)
                if not again:
                    await self._requests.take(str(signed_in.id), signed_in.tenant_id)
                self._require_second_factor(connection, signed_in)
                return signed_in, None
        raise Unauthenticated("Sign in, or send a token: Authorization: Bearer <token>.")

    def must_set_up(self, principal: Principal) -> bool:
        """Whether the user's role needs a second factor, and the user, who signed in with a password, has none."""
        return principal.lacks_second_factor and principal.role in self._fl.settings.require_second_factor

    def _require_second_factor(self, connection: HTTPConnection, principal: Principal) -> None:
        if self.must_set_up(principal) and not connection.scope.get(DURING_SETUP):
            raise SecondFactorSetupRequired(
                f"The role {principal.role} needs a second factor. Set it up on your account page, or with: "
                "POST /api/v1/account/second-factor. Until then this session can do nothing else."
            )

    async def _check_address(self, connection: HTTPConnection, principal: Principal) -> None:
        """Raise AddressNotAllowed unless the allow-lists admit the client. Of each principal, one refusal a minute is audited."""
        if not principal.address_lists:
            return
        ip = client_address(connection)
        try:
            require_allowed(principal.address_lists, ip)
        except AddressNotAllowed:
            await self.record_refused_address(principal, ip)
            raise

    async def record_refused_address(self, principal: Principal, ip: str | None) -> None:
        """Audit a refusal because of the address, in the cell of the tenant; of each principal one a minute."""
        now = time.monotonic()
        if now - self._refused_at.get(principal.id, -math.inf) < AUDIT_SECONDS:
            return
        if len(self._refused_at) >= MOST_REMEMBERED:
            self._refused_at.clear()
        self._refused_at[principal.id] = now
        fl = self._fl
        with go_on_without_client():
            if fl.cells and principal.tenant_id is not None:
                fl = await fl.cells.find(str(principal.tenant_id))
            async with fl.database.transaction(TransactionIdentity(None, ip, principal.id)) as tx:
                await address_lists.record_refusal(tx, principal, ip)

    async def signed_in(
        self, connection: HTTPConnection, secret: str, *, is_use: bool = True
    ) -> Principal | None:
        """The principal of a session, if any. A forged cookie counts as a failed attempt of the address."""
        async with self._fl.database.transaction() as tx:
            found = await user_sessions.find_session_principal(
                tx, secret, is_use=is_use, idle_seconds=idle_seconds(self._fl.settings)
            )
            made_up = found is None and await user_sessions.is_unknown_session(tx, secret)
            await self._require_readable(tx, connection, found)
        if made_up:
            await self.count_unknown_secret(connection, secret)
        return found

    async def count_unknown_secret(self, connection: HTTPConnection, secret: str) -> None:
        """Count a failed attempt of the client's address; TenantMoved if the secret's tenant lives in another cell."""
        with go_on_without_client():  # a client that leaves must not have more guesses
            if (tenant_id := read_tenant_id(secret)) is not None:
                await self.require_here(connection, str(tenant_id))
            await self.failures.count(address_failures(client_address(connection)))

    async def check_failures(self, counted: list[CountedFailure]) -> None:
        """Raise TooManyRequests if a budget of failures is used up, as the home cell counts them."""
        fl = (self._home or self).fl
        await fl.database.single(lambda tx: self.failures.check(tx, counted))

    async def require_here(self, connection: HTTPConnection, tenant: str) -> None:
        """Raise TenantMoved if the tenant (of which this cell knows nothing) lives in another cell."""
        cells = (self._home or self).fl.cells
        if cells and not await cells.is_in(tenant, self._fl):
            note_tenant(connection.scope, tenant)
            raise moved_error(tenant)

    async def _require_readable(
        self, tx: Tx, connection: HTTPConnection, principal: Principal | None
    ) -> None:
        """Raise TenantMoved if the principal's tenant has left this cell: its secrets may still be here."""
        if principal is not None and principal.tenant_id is not None and (self._home or self).fl.cells:
            note_tenant(connection.scope, str(principal.tenant_id))
            await tenants.find_id(tx, str(principal.tenant_id))

    @property
    def fl(self) -> Fairlead:
        return self._fl

    def keep(self, good: Mapping[UUID, tuple[AddressList, ...]]) -> None:
        """Keep these tokens cached a moment longer: the caller has just verified them, and read their allow-lists."""
        now = time.monotonic()
        for hashed, (_, principal, token_id) in list(self._known.items()):
            if (lists := good.get(token_id)) is not None:
                self._known[hashed] = (now, replace(principal, address_lists=lists), token_id)

    def forget(self) -> None:
        """Drop all cached tokens."""
        self._drops += 1
        self._known.clear()

    async def _authenticate_token(
        self, connection: HTTPConnection, scheme: str, secret: str
    ) -> tuple[Principal, UUID]:
        hashed = hash_secret(secret)
        at, principal, token_id = self._known.get(hashed, (-math.inf, None, None))
        now = time.monotonic()
        if scheme.lower() != "bearer" or principal is None or token_id is None or now - at > REMEMBER_SECONDS:
            drops = self._drops
            # a valid token is accepted, however many invalid ones come from the same address
            found = None
            if scheme.lower() == "bearer" and secret:
                async with self._fl.database.transaction() as tx:
                    found = await access.find_token_principal(tx, secret)
                    if found is not None:
                        await self._require_readable(tx, connection, found[0])
                        await access.mark_token_used(tx, found[1])
            if found is None:
                self._known.pop(hashed, None)
                await self.count_unknown_secret(connection, secret)
                raise Unauthenticated(
                    "This token is unknown, expired or revoked. Create another with: fairlead tokens create"
                )
            principal, token_id = found
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            if drops == self._drops:
                self._known[hashed] = (now, principal, token_id)
        return principal, token_id

    async def find_tenant(self, connection: HTTPConnection, named: str, own: UUID | None) -> UUID:
        """The id of a tenant that a caller names; TenantUnknown for all but its `own`, if it has one.

        TenantMoved if it lives in another cell.
        """
        try:
            async with self._fl.database.transaction() as tx:
                found = await tenants.find_id(tx, named)
            if found is None and own is None:
                await self.require_here(connection, named)
        except (TenantMoved, TenantMoving) as error:
            if own is not None and str(own) != named.lower():
                raise unknown_tenant(named) from error  # the tenants of others do not exist
            note_tenant(connection.scope, named)
            raise
        if found is None or (own is not None and own != found):
            raise unknown_tenant(named)
        return found

    async def _choose_tenant(self, connection: HTTPConnection, caller: Caller, *, everywhere: bool) -> Caller:
        """Apply X-Tenant. A tenant's own users and tokens get 404 for any other tenant."""
        named = read_single_header(connection, "x-tenant")
        if named is None:
            named = connection.scope.get(CHOSEN_TENANT)
        if named is None:
            return caller
        try:
            found = await self.find_tenant(connection, named, caller.tenant_id)
        except (TenantMoved, TenantMoving):
            if everywhere:
                return caller
            raise
        return replace(caller, principal=replace(caller.principal, tenant_id=found))


class Readmission:
    """Authenticates the caller of a request that lasts long again: the token may be revoked, or the session ended, meanwhile."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._checked_at = time.monotonic()

    async def check(self) -> None:
        """Raise the refusal if the caller is no longer signed in. Checked every CHECK_SECONDS."""
        if time.monotonic() - self._checked_at >= CHECK_SECONDS:
            await self.check_now()

    async def check_now(self) -> None:
        """Raise the refusal if the caller is no longer signed in."""
        requires, _ = self._request.scope[ADMITTED]
        gatekeeper: Gatekeeper = self._request.app.state.gatekeeper
        await gatekeeper.caller(self._request, everywhere=requires.everywhere, again=True)
        self._checked_at = time.monotonic()


class Requires:
    """A route's permission: a dependency that returns the caller.

    With `everywhere` the route is about the whole system, and X-Tenant is ignored. With `during_setup` it also serves a
    user who must set up a second factor first.
    """

    def __init__(
        self, permission: Permission | None, *, everywhere: bool = False, during_setup: bool = False
    ) -> None:
        self.permission = permission
        self.everywhere = everywhere
        self.during_setup = during_setup

    async def __call__(self, request: Request) -> Caller:
        by, admitted = request.scope.get(ADMITTED, (None, None))
        if by is self and isinstance(admitted, Caller):  # GuardedRoute has authenticated the caller already
            return admitted
        self.check_address(request)
        request.scope[DURING_SETUP] = self.during_setup
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        caller = await gatekeeper.caller(request, everywhere=self.everywhere)
        if self.everywhere and caller.principal.role is Role.SUPER_ADMIN:
            caller = replace(caller, principal=replace(caller.principal, tenant_id=None))
        request.state.caller = caller  # for the log
        if (denial := self.denial(caller.principal)) is not None:
            await _record_denial(caller, request, self.permission)
            raise denial
        return caller

    def denial(self, principal: Principal) -> Forbidden | None:
        """The error for a principal that may not use the route, or None."""
        if self.permission is None or self.permission in principal.permissions:
            return None
        return missing_permission_error(self.permission, principal, f"The role {principal.role}")

    def check_address(self, request: Request) -> None:
        """Reject unknown or unreadable parameters."""
        refuse_unknown_query(request)
        refuse_unreadable(request)


class PublicAccess(Requires):
    """Declares that a route needs no authentication. Without `reads_body` the route reads and limits its body itself."""

    def __init__(self, *, reads_body: bool = True) -> None:
        super().__init__(None)
        self.reads_body = reads_body

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        self.check_address(request)


class GuardedRoute(APIRoute):
    """A route that authenticates before it parses the body; FastAPI alone would parse first.

    Its response may be a record of the model.
    """

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, response_model: Any, **options: Any
    ) -> None:
        unset = isinstance(response_model, DefaultPlaceholder)
        answer = endpoint.__annotations__.get("return") if unset else response_model
        if is_record(answer):
            response_model = view_of(answer)
            if is_page(response_model):
                endpoint = respond_in_slices(endpoint, response_model)
        super().__init__(path, endpoint, response_model=response_model, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, behind the route's requirement."""
        handle = super().get_route_handler()
        requires = next(
            (one.call for one in self.dependant.dependencies if isinstance(one.call, Requires)), None
        )
        if requires is None:  # require_declared_permissions then refuses to start
            return handle

        async def guard(plain: Request) -> Response:
            request = SlicedRequest(plain.scope, plain.receive)
            admitted = await requires(request)
            request.scope[ADMITTED] = (requires, admitted)
            if not isinstance(requires, PublicAccess):
                request.after_body = Readmission(request).check
            if isinstance(requires, PublicAccess) and requires.reads_body:
                await read_bounded_body(request, MOST_PUBLIC_BODY_BYTES)
            if self.body_field is not None:
                await _require_json(request)
                await request.admit()
            if isinstance(requires, PublicAccess):
                try:
                    return forbid_storing(await handle(request))
                finally:
                    await _record_refused_sign_in(request)
            try:
                return _name_missing_cells(admitted, forbid_storing(await handle(request)))
            except Forbidden as denial:  # raised by an action
                await _record_denial(admitted, request, requires.permission, why=denial.message)
                raise

        return guard


def add_routes(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Add the routes of these routers as they are; their paths are complete.

    `include_router` would read the signature of each function once more, for every application, and look for the route of
    each request twice.
    """
    for router in routers:
        app.router.routes.extend(router.routes)


async def _record_refused_sign_in(request: Request) -> None:
    """Audit a sign-in that was refused because of the address; its own transaction has ended."""
    if (principal := request.scope.pop(REFUSED_ADDRESS, None)) is not None:
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        await gatekeeper.record_refused_address(principal, client_address(request))


def _name_missing_cells(admitted: Caller | None, answer: Response) -> Response:
    if admitted is not None and admitted.missing:
        answer.headers[MISSING_CELLS] = ", ".join(admitted.missing)
    return answer


def forbid_storing(answer: Response) -> Response:
    """Forbid caches to store the response, and browsers to guess its type."""
    answer.headers.setdefault("Cache-Control", "no-store")
    answer.headers.setdefault("X-Content-Type-Options", "nosniff")
    return answer


async def read_bounded_body(request: Request, most: int) -> bytes:
    """Read the body, up to `most` bytes."""
    refusal = BodyTooLarge(f"The body is larger than {most} bytes. Send less.")
    if hasattr(request, "_body"):  # it was read before
        if len(await request.body()) > most:
            raise refusal
        return await request.body()
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise refusal
    whole = request._body = bytes(body)  # noqa: SLF001 - Starlette caches the body here
    return whole


async def _require_json(request: Request) -> None:
    """Require a JSON content type: a form on another site cannot send one."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if await request.body():
        sent = f", not {kind[:80]!r}" if kind else ""
        raise ContentTypeUnsupported(
            f"Send JSON with the header Content-Type: application/json{sent}.",
            [Fault("Content-Type", "must be application/json")],
        )


async def _record_denial(
    caller: Caller, request: Request, permission: Permission | None, why: str | None = None
) -> None:
    """Audit a denial in a separate transaction."""
    details = {"method": request.method, "route": route_of(request.scope), "permission": permission}
    acting = TransactionIdentity(None, caller.ip, caller.principal.id)
    with go_on_without_client():
        async with caller.fl.database.transaction(acting) as tx:
            await access.record_denial(
                tx, caller.principal, details if why is None else details | {"why": why}
            )


def refuse_unreadable(request: Request) -> None:
    """Reject parameters with characters that PostgreSQL cannot store."""
    given = [*request.query_params.multi_items(), *request.path_params.items()]
    if faults := [Fault(name, why) for name, text in given if (why := find_storage_flaw(str(text)))]:
        raise InvalidInput(f"The request is not valid: {faults[0].path}: {faults[0].message}.", faults)


def refuse_unknown_query(request: Request) -> None:
    """Reject query parameters that the route does not have."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    known = {name for one in _query_fields(dependant) for name in _parameter_names(one)}
    if unknown := [name for name in request.query_params if name not in known]:
        raise InvalidInput(
            f"There is no parameter {unknown[0][:80]!r} here. Known: {', '.join(sorted(known)) or 'none'}.",
            [Fault(name[:80], "unknown parameter") for name in unknown[:10]],
        )


def _parameter_names(field: Any) -> list[str]:
    """A parameter's name, or all names of a parameter model."""
    model = getattr(field.field_info.annotation, "model_fields", None)
    return [field.alias] if model is None else list(model)


def _query_fields(dependant: object) -> list[Any]:
    fields: list[Any] = list(getattr(dependant, "query_params", []))
    for one in getattr(dependant, "dependencies", []):
        fields += _query_fields(one)
    return fields


def cookie_name(connection: HTTPConnection) -> str:
    """The name of a session's cookie."""
    return HOST_COOKIE if connection.url.scheme in ("https", "wss") else COOKIE


def session_secret(connection: HTTPConnection) -> str | None:
    """The secret in the session cookie, if any."""
    return connection.cookies.get(cookie_name(connection)) or None


def is_use(connection: HTTPConnection) -> bool:
    """Whether a request shows that somebody uses the session: a browser refreshes open pages and follows logs by itself."""
    return (
        connection.scope["type"] == "http"
        and LIVE_PARTS not in connection.headers
        and "follow" not in connection.query_params
    )


def idle_seconds(settings: Settings) -> float | None:
    """After how long without use a session ends; None: it has no idle timeout."""
    # no session is longer than a year
    return min(settings.session_idle_minutes, 527_040) * 60 or None


def read_single_header(connection: HTTPConnection, name: str) -> str | None:
    """A header's value. Rejects a repeated header: a proxy may have checked the other value."""
    values = connection.headers.getlist(name)
    if len(values) > 1:
        raise InvalidInput(f"Send the header {name} once.", [Fault(name, "sent more than once")])
    return values[0] if values else None


def may_write(connection: HTTPConnection) -> bool:
    """Whether the request may change something. A live socket only reads."""
    return connection.scope["type"] == "http" and connection.scope["method"] not in SAFE_METHODS


def require_same_site(connection: HTTPConnection) -> None:
    """Reject changes from pages of other sites: browsers send the cookie with those, too."""
    if connection.scope["type"] == "http" and connection.scope["method"] in SAFE_METHODS:
        return
    if not is_same_site(connection):
        raise CrossSite("This request came from a page of another site and was refused.")


def is_same_site(connection: HTTPConnection) -> bool:
    """Whether the request comes from our own pages, or from a program that sends no origin."""
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = connection.headers.get("origin")
    return origin is None or _host_of(origin) == connection.headers.get("host")


def _host_of(origin: str) -> str:
    """The host of an origin; `nowhere` for `null` and for invalid origins."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return "nowhere"
    return parts.netloc if parts.scheme in ("http", "https") and parts.netloc else "nowhere"
