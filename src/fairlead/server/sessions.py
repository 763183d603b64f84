"""Sign-in with a password, sign-out, and the session cookie."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from fairlead.actions import account, password_sign_in, user_sessions
from fairlead.actions.password_sign_in import SignInOutcome
from fairlead.actions.second_factor import CodeCheck
from fairlead.actions.user_sessions import VerifiedUser
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import AddressNotAllowed, Fault, PasswordWrong, SecondFactorRequired, Unauthenticated
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal
from fairlead.model.address_list import require_allowed
from fairlead.model.second_factor import SignInProof
from fairlead.model.secrets.generated import read_tenant_id
from fairlead.server.all_cells import ask_cells, missing_cells, unreachable_error
from fairlead.server.auth import (
    REFUSED_ADDRESS,
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
# Lets in a user whose password is right: None if the user was changed meanwhile.
Enter = Callable[[Tx, VerifiedUser], Awaitable[SignInOutcome | None]]

# Password hashes take much memory on purpose.
MOST_AT_ONCE = 4
# Passwords that admins set for others: they do not keep people from signing in.
MOST_SET_AT_ONCE = 2


async def sign_in(
    request: Request, email: str, password: str, code: str | None = None
) -> tuple[Principal, str]:
    """Check the password, and the code if the user has a second factor; the principal and a new session's secret.

    Raises Unauthenticated for a wrong password, with and without a second factor, and SecondFactorRequired for a right one
    without the right code.
    """
    outcome = await _enter_with_password(request, email, password, code=code)
    if outcome.principal is not None and outcome.secret is not None:
        return outcome.principal, outcome.secret
    raise await refuse_code(request, email, outcome.check)


async def begin_sign_in(request: Request, email: str, password: str) -> SignInOutcome:
    """The same for a browser: with a second factor, a pending sign-in, which `finish_sign_in` continues."""
    return await _enter_with_password(request, email, password, waits=True)


async def refuse_code(request: Request, email: str, check: CodeCheck) -> SecondFactorRequired:
    """The error for a missing or wrong code. A wrong one counts as a failure of the account and of the address."""
    if check is CodeCheck.WRONG:
        gatekeeper: Gatekeeper = request.app.state.gatekeeper
        await gatekeeper.failures.count(account_failures(email, client_address(request)))
        return SecondFactorRequired(
            "The code is wrong, or was used before. Use the next code of the authenticator app, or a recovery code.",
            [Fault("code", "is wrong, or was used before")],
        )
    return SecondFactorRequired(
        "This account has a second factor: send `code`, the code of the authenticator app or a recovery code, too.",
        [Fault("code", "is required")],
    )


async def _enter_with_password(
    request: Request, email: str, password: str, *, code: str | None = None, waits: bool = False
) -> SignInOutcome:
    """Check the password, and let the user in as far as the code allows, or raise Unauthenticated."""
    require_same_site(request)
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    counted = account_failures(email, ip)
    enter = partial(password_sign_in.enter, code=code, start=partial(open_session, request), waits=waits)
    if fl.cells:
        return await _enter_any_cell(request, email, password, enter)
    async with request.app.state.signing_in, fl.database.transaction(TransactionIdentity(None, ip)) as tx:
        # inside the semaphore, so that concurrent attempts do not all pass before the first has failed
        await gatekeeper.failures.check(tx, counted)
        user = await user_sessions.verify_user(
            tx, email=email, password=password, may_use_password=request.app.state.oidc.may_use_password
        )
        if user is not None and (outcome := await enter(tx, user)):
            return outcome
        await user_sessions.record_failed_sign_in(tx, email=email)
    await gatekeeper.failures.count(counted)
    raise Unauthenticated("Wrong email or password.")


async def open_session(
    request: Request,
    tx: Tx,
    user: VerifiedUser,
    details: Mapping[str, object] | None = None,
    *,
    proof: SignInProof = SignInProof.PASSWORD,
) -> tuple[Principal, str] | None:
    """Start a session for a verified user, in the browser that sent the request, as the settings say.

    The principal and the cookie's secret; None if the user was changed meanwhile, or has a second factor and the proof is
    only a password, or a link that stands for one. AddressNotAllowed if the tenant has an allow-list without the browser's
    address.
    """
    settings = request.app.state.fl.settings
    begun = await user_sessions.start_session(
        tx,
        user,
        seconds=settings.session_hours * 3600,
        idle_seconds=idle_seconds(settings),
        user_agent=request.headers.get("user-agent"),
        details=details,
        proof=proof,
    )
    if begun is not None:
        try:
            require_allowed(begun[0].address_lists, client_address(request))
        except AddressNotAllowed:  # which ends the transaction: the route audits it afterwards
            request.scope[REFUSED_ADDRESS] = begun[0]
            raise
    return begun


async def _enter_any_cell(request: Request, email: str, password: str, enter: Enter) -> SignInOutcome:
    """The same for a user of any cell: several tenants may have the address, and the password selects the user."""
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    counted, acting = account_failures(email, ip), TransactionIdentity(None, ip)
    async with request.app.state.signing_in:
        await gatekeeper.check_failures(counted)
        answers = await ask_cells(fl, acting, lambda tx, _: user_sessions.find_credentials(tx, email=email))
        member_of = {user.id: answer.fl for answer in answers for user in answer.value or ()}
        found = [user for answer in answers for user in answer.value or ()]
        user = await user_sessions.choose_user(found, password, request.app.state.oidc.may_use_password)
        if user is not None:
            async with member_of[user.id].database.transaction(acting) as tx:
                if outcome := await enter(tx, user):
                    return outcome
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


def limit_hashing(request: Request, *, has_password: bool) -> AbstractAsyncContextManager[object]:
    """Wait until few others set a password, before a transaction begins: those who wait for a hash would hold all connections."""
    return request.app.state.setting_passwords if has_password else nullcontext()


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
