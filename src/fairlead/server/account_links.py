"""What people do with links in mails who are not signed in: ask for one, and set a password with it."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from fastapi import Request
from starlette.background import BackgroundTask

from fairlead.actions import account_links, invitations, password_resets
from fairlead.actions import rate_limits as allowances
from fairlead.actions.account_links import Mailer
from fairlead.actions.rate_limits import RateBudget
from fairlead.db.tx import TransactionIdentity, Tx
from fairlead.errors import AccountLinkInvalid, FairleadError, SignInRefused, TenantUnknown
from fairlead.library.app import Fairlead
from fairlead.model.access import Principal
from fairlead.model.account_link import LinkPurpose
from fairlead.model.secrets.generated import read_tenant_id
from fairlead.server.all_cells import ask_cells
from fairlead.server.auth import Gatekeeper, require_same_site
from fairlead.server.client_addresses import address_group, client_address
from fairlead.server.rate_limits import address_failures, too_many_requests
from fairlead.server.sessions import open_session

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Requests for resets from one address, whichever accounts they name.
RESETS_FROM_ADDRESS = RateBudget(20, 30.0)


async def can_mail(fl: Fairlead) -> bool:
    """Whether links can be mailed."""
    return await fl.database.single(lambda tx: account_links.can_mail(tx, fl.settings))


async def request_reset(request: Request, email: str) -> BackgroundTask:
    """The work that mails a link to each account of an address, for after the response.

    The response says and takes the same whether or not the address is known.
    """
    require_same_site(request)
    fl: Fairlead = request.app.state.fl
    ip = client_address(request)
    await fl.database.single(lambda tx: account_links.require_mail(tx, fl.settings))
    key = f"reset:from:{address_group(ip)}"
    taken = await fl.database.single(lambda tx: allowances.take_units(tx, key, RESETS_FROM_ADDRESS))
    if taken.wait > 0:
        raise too_many_requests("Too many requests from this address", taken.wait)
    return BackgroundTask(_send_resets, fl, email, TransactionIdentity(None, ip))


async def _send_resets(fl: Fairlead, email: str, acting: TransactionIdentity) -> None:
    if not await fl.database.single(lambda tx: password_resets.may_mail(tx, email)):
        log.warning("reset_mails_limited")
        return
    answers = await ask_cells(fl, acting, lambda tx, _: password_resets.find_accounts(tx, email))
    for answer in answers:
        for user in answer.value or ():
            try:
                async with answer.fl.database.transaction(acting) as tx:
                    mailer = Mailer(answer.fl.settings, answer.fl.catalog)
                    await password_resets.send(tx, mailer, user.id)
            except FairleadError as error:  # the other accounts still get theirs
                log.error("reset_mail_not_sent", user_id=str(user.id), code=error.code, why=error.message)  # noqa: TRY400 - one line


async def confirm_reset(request: Request, token: str, password: str) -> None:
    """Set a new password with the link of a reset."""

    async def use(tx: Tx, password_hash: str) -> None:
        await password_resets.reset(tx, token, password_hash=password_hash)

    await _use_link(request, token, password, LinkPurpose.RESET, use)


async def accept_invitation(request: Request, token: str, password: str) -> tuple[Principal, str]:
    """Set the first password with the link of an invitation; the principal and a new session's secret."""

    async def use(tx: Tx, password_hash: str) -> tuple[Principal, str]:
        user = await invitations.accept(tx, token, password_hash=password_hash)
        if not request.app.state.oidc.may_use_password(user):
            raise SignInRefused(
                "People of your tenant do not sign in with passwords. Use the button of your identity provider on the sign-in page."
            )
        begun = await open_session(request, tx, user, {"with": "invitation"})
        if begun is None:
            raise account_links.link_invalid(LinkPurpose.INVITATION)
        return begun

    return await _use_link(request, token, password, LinkPurpose.INVITATION, use)


async def _use_link(
    request: Request,
    token: str,
    password: str,
    purpose: LinkPurpose,
    use: Callable[[Tx, str], Awaitable[T]],
) -> T:
    """Use a link in its tenant's cell. Wrong links are limited like wrong tokens."""
    require_same_site(request)
    fl: Fairlead = request.app.state.fl
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    ip = client_address(request)
    counted, acting = address_failures(ip), TransactionIdentity(None, ip)
    await gatekeeper.check_failures(counted)
    try:
        await _require_cell(request, token, purpose)
        # hashes of passwords take much memory on purpose: a guess must not cost one
        async with fl.database.transaction(acting) as tx:
            await account_links.find_user(tx, token, purpose)
        async with request.app.state.signing_in:
            password_hash = await account_links.hash_new_password(password)
        async with fl.database.transaction(acting) as tx:
            return await use(tx, password_hash)
    except AccountLinkInvalid:
        await gatekeeper.failures.count(counted)
        raise


async def _require_cell(request: Request, token: str, purpose: LinkPurpose) -> None:
    """Raise TenantMoved if the tenant that the link names lives in another cell."""
    tenant_id = read_tenant_id(token)
    if tenant_id is None:
        return
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    try:
        await gatekeeper.find_tenant(request, str(tenant_id), None)
    except TenantUnknown:
        raise account_links.link_invalid(purpose) from None
