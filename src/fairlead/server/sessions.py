"""Sign-in with a password, sign-out, and the session cookie."""

from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from fairlead.actions import access
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import Unauthenticated
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal
from fairlead.server.auth import Gatekeeper, cookie_name, require_same_site, session_secret
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
    async with request.app.state.signing_in, fl.database.transaction(TransactionIdentity(None, ip)) as tx:
        # inside the semaphore, so that concurrent attempts do not all pass before the first has failed
        await gatekeeper.failures.check(tx, counted)
        user = await access.verify_user(tx, email=email, password=password)
        seconds = fl.settings.session_hours * 3600
        if user is not None and (begun := await access.sign_in(tx, user, seconds=seconds)):
            return begun
        await access.record_failed_sign_in(tx, email=email)
    await gatekeeper.failures.count(counted)
    raise Unauthenticated("The e-mail address or the password is wrong.")


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
        async with fl.database.transaction(TransactionIdentity(None, client_address(request))) as tx:
            await access.sign_out(tx, secret)
    answer.delete_cookie(
        cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True, samesite="lax"
    )
    return answer
