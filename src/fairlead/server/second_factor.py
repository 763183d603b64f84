"""The second factor over HTTP: changes of one's own, and the pending sign-in of a browser with its cookie."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import HTTPConnection

from fairlead.actions import password_sign_in, second_factor
from fairlead.actions.password_sign_in import PENDING_SECONDS
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import PasswordWrong, Refused, Unauthenticated
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal
from fairlead.model.secrets.generated import read_tenant_id
from fairlead.server.auth import Caller, Gatekeeper, require_same_site
from fairlead.server.client_addresses import client_address
from fairlead.server.rate_limits import account_failures, address_failures
from fairlead.server.sessions import open_session, own_transaction, refuse_code

T = TypeVar("T")
A = TypeVar("A", bound=Response)

COOKIE = "fairlead_pending"
HOST_COOKIE = "__Host-fairlead_pending"


# One's own


async def change_own(request: Request, caller: Caller, change: Callable[[Tx], Awaitable[T | None]]) -> T:
    """Change the caller's own second factor. A wrong password or code (None) is audited, and limited like a sign-in."""
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    principal = caller.principal
    counted = account_failures(principal.actor.removeprefix("user:"), caller.ip)
    async with request.app.state.signing_in:
        await gatekeeper.check_failures(counted)
        error: Refused = second_factor.wrong_code_error()
        try:
            async with own_transaction(caller) as tx:
                done = await change(tx)
            if done is not None:
                return done
        except PasswordWrong as wrong:
            error = wrong
        async with own_transaction(caller) as tx:
            await second_factor.record_failure(tx, principal)
        await gatekeeper.failures.count(counted)
        raise error


# The pending sign-in of a browser


async def find_pending_email(request: Request) -> str | None:
    """The address of the user whose sign-in waits for a code in this browser; None if none does."""
    if (secret := _pending_secret(request)) is None:
        return None
    member = await _find_member(request, secret)
    async with member.database.transaction(TransactionIdentity(None, client_address(request))) as tx:
        user = await password_sign_in.find_pending(tx, secret)
    return None if user is None else user.email


async def finish_sign_in(request: Request, code: str) -> tuple[Principal, str]:
    """Finish the pending sign-in of this browser: the principal and a new session's secret.

    Raises SecondFactorRequired for a wrong code, and Unauthenticated if the pending sign-in has ended.
    """
    require_same_site(request)
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    secret, email = _pending_secret(request), await find_pending_email(request)
    if secret is None or email is None:
        await gatekeeper.failures.count(address_failures(ip))
        raise _pending_ended()
    member = await _find_member(request, secret)
    async with request.app.state.signing_in:
        await gatekeeper.check_failures(account_failures(email, ip))
        async with member.database.transaction(TransactionIdentity(None, ip)) as tx:
            outcome = await password_sign_in.enter_pending(
                tx, secret, code=code, start=partial(open_session, request)
            )
    if outcome is None:
        raise _pending_ended()
    if outcome.principal is not None and outcome.secret is not None:
        return outcome.principal, outcome.secret
    raise await refuse_code(request, email, outcome.check)


def _pending_ended() -> Unauthenticated:
    return Unauthenticated("This took too long, or too many codes were wrong. Enter your password again.")


async def _find_member(request: Request, secret: str) -> Fairlead:
    """The cell of the user: the secret names the user's tenant."""
    fl: Fairlead = request.app.state.fl
    tenant_id = read_tenant_id(secret)
    return fl if tenant_id is None or not fl.cells else await fl.cells.find(str(tenant_id))


def _cookie_name(connection: HTTPConnection) -> str:
    return HOST_COOKIE if connection.url.scheme == "https" else COOKIE


def _pending_secret(request: Request) -> str | None:
    return request.cookies.get(_cookie_name(request)) or None


def set_pending_cookie(request: Request, answer: A, secret: str) -> A:
    """Add the cookie of a pending sign-in to the response."""
    answer.set_cookie(
        _cookie_name(request),
        secret,
        max_age=PENDING_SECONDS,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def delete_pending_cookie(request: Request, answer: A) -> A:
    """Delete the cookie of a pending sign-in in the response."""
    answer.delete_cookie(
        _cookie_name(request),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer
