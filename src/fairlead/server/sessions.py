"""Sign-in with a password, sign-out, and the session cookie."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from fairlead.actions import account, user_sessions
from fairlead.actions.user_sessions import VerifiedUser
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import PasswordWrong, Unauthenticated
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal
from fairlead.model.secrets.generated import read_tenant_id
from fairlead.server.all_cells import ask_cells, missing_cells, unreachable_error
from fairlead.server.auth import (
    Caller,
    Gatekeeper,
    cookie_name,
    idle_seconds,
    require_same_site,
    session_secret,
)
from fairlead.server.client_addresses import client_address
from fairlead.server.rate_limits import account_failures

A = TypeVar("A", bound=Response)

# Password hashes take much memory on purpose.
MOST_AT_ONCE = 4


async def sign_in(request: Request, email: str, password: str) -> tuple[Principal, str]:
    """Check the password; return the principal and a new session's secret, or raise Unauthenticated."""
    require_same_site(request)
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    counted = account_failures(email, ip)
    if fl.cells:
        return await _sign_in_any_cell(request, email, password)
    async with request.app.state.signing_in, fl.database.transaction(TransactionIdentity(None, ip)) as tx:
        # inside the semaphore, so that concurrent attempts do not all pass before the first has failed
        await gatekeeper.failures.check(tx, counted)
        user = await user_sessions.verify_user(tx, email=email, password=password)
        if user is not None and (begun := await open_session(request, tx, user)):
            return begun
        await user_sessions.record_failed_sign_in(tx, email=email)
    await gatekeeper.failures.count(counted)
    raise Unauthenticated("Wrong email or password.")


async def open_session(
    request: Request, tx: Tx, user: VerifiedUser, details: Mapping[str, object] | None = None
) -> tuple[Principal, str] | None:
    """Start a session for a verified user, in the browser that sent the request, as the settings say.

    The principal and the cookie's secret; None if the user was changed meanwhile.
    """
    settings = request.app.state.fl.settings
    return await user_sessions.start_session(
        tx,
        user,
        seconds=settings.session_hours * 3600,
        idle_seconds=idle_seconds(settings),
        user_agent=request.headers.get("user-agent"),
        details=details,
    )


async def _sign_in_any_cell(request: Request, email: str, password: str) -> tuple[Principal, str]:
    """Sign in a user of any cell: several tenants may have the address, and the password selects the user."""
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    counted, acting = account_failures(email, ip), TransactionIdentity(None, ip)
    async with request.app.state.signing_in:
        await gatekeeper.check_failures(counted)
        answers = await ask_cells(fl, acting, lambda tx, _: user_sessions.find_credentials(tx, email=email))
        member_of = {user.id: answer.fl for answer in answers for user in answer.value or ()}
        found = [user for answer in answers for user in answer.value or ()]
        user = await user_sessions.choose_user(found, password)
        if user is not None:
            async with member_of[user.id].database.transaction(acting) as tx:
                if begun := await open_session(request, tx, user):
                    return begun
        for member in {id(one): one for one in (fl, *member_of.values())}.values():
            async with member.database.transaction(acting) as tx:
                await user_sessions.record_failed_sign_in(
                    tx, email=email, if_known=member is not fl or bool(found)
                )
    await gatekeeper.failures.count(counted)
    if missing := missing_cells(answers):
        raise unreachable_error(missing)
    raise Unauthenticated("Wrong email or password.")


async def change_password(request: Request, caller: Caller, old: str, new: str) -> int:
    """Change the caller's own password; failed attempts are limited like those of a sign-in.

    The number of other sessions that it ended.
    """
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    principal = caller.principal
    counted = account_failures(principal.actor.removeprefix("user:"), caller.ip)
    async with request.app.state.signing_in:
        try:
            await gatekeeper.check_failures(counted)
            async with own_transaction(caller) as tx:
                return await account.change_password(
                    tx, principal, old=old, new=new, session=session_secret(request)
                )
        except PasswordWrong:
            async with own_transaction(caller) as tx:
                await account.record_wrong_password(tx, principal)
            await gatekeeper.failures.count(counted)
            raise


def own_transaction(caller: Caller) -> AbstractAsyncContextManager[Tx]:
    """A transaction that sees the caller's own user: a super admin belongs to no tenant, whichever was chosen."""
    return caller.transaction(as_system=True)


def set_session_cookie(request: Request, answer: A, secret: str) -> A:
    """Add the session cookie to the response."""
    fl: Fairlead = request.app.state.fl
    answer.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(fl.settings.session_hours * 3600),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )
    return answer


async def sign_out(request: Request, answer: A) -> A:
    """End the session, and delete its cookie in the response."""
    require_same_site(request)
    fl: Fairlead = request.app.state.fl
    if secret := session_secret(request):
        if (tenant_id := read_tenant_id(secret)) is not None:
            gatekeeper: Gatekeeper = request.app.state.gatekeeper
            await gatekeeper.require_here(request, str(tenant_id))
        async with fl.database.transaction(TransactionIdentity(None, client_address(request))) as tx:
            await user_sessions.sign_out(tx, secret)
    return delete_session_cookie(request, answer)


async def sign_out_everywhere(request: Request, caller: Caller, answer: A) -> A:
    """End all sessions of the caller, and delete the cookie of this one in the response."""
    async with own_transaction(caller) as tx:
        await account.sign_out_everywhere(tx, caller.principal)
    return delete_session_cookie(request, answer)


def delete_session_cookie(request: Request, answer: A) -> A:
    """Delete the session cookie in the response."""
    answer.delete_cookie(
        cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True, samesite="lax"
    )
    return answer
