"""The users of a tenant."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import access, identities, invitations, second_factor
from fairlead.actions.account_links import Mailer
from fairlead.errors import (
    EmailNotConfigured,
    FairleadError,
    Fault,
    InvalidInput,
    PublicUrlMissing,
    TooManyRequests,
    UserExists,
)
from fairlead.model.access import Permission, Role, User
from fairlead.server.account_links import can_mail
from fairlead.server.auth import GuardedRoute, session_secret
from fairlead.server.console import render, roles
from fairlead.server.console.lists import after_id, list_page, tenant_slugs
from fairlead.server.console.visit import RequiresVisit, Visit, page_url
from fairlead.server.oidc import OidcSignIns
from fairlead.server.sessions import delete_session_cookie, limit_hashing

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_USERS))]

TokenManager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TOKENS))]

ROWS = 50
# 128 random bits.
GENERATED_BYTES = 16
NEW_MEMBER = {"email": "", "role": Role.OPERATOR.value, "how": "generated"}
INVITED = "invited"
# The errors that the form for a new member shows.
NOT_ADDED = (InvalidInput, UserExists, EmailNotConfigured, PublicUrlMissing, TooManyRequests)


@router.get("/members")
async def list_members(request: Request, visit: Manager) -> Response:
    """The members and their roles."""
    async with visit.transaction() as tx:
        found = await access.list_users(tx, visit.principal, after=after_id(request), limit=ROWS)
        slugs = await tenant_slugs(tx, visit)
    return visit.page(
        "members.html",
        page=list_page(found),
        slugs=slugs,
        own=lambda user: _is_own(visit, user),
        words=roles.DESCRIPTIONS,
        now=datetime.now(UTC),
        **await _form_facts(visit),
    )


@router.post("/members")
async def add(visit: Manager) -> Response:
    """Invite a member, or add one with a chosen password or a generated one that is shown once."""
    form = NEW_MEMBER | await visit.form()
    try:
        if form["how"] == INVITED:
            return await _invite(visit, form)
        password = _read_password(form)
        async with limit_hashing(visit.current_request, has_password=True), visit.transaction() as tx:
            user = await access.add_user(
                tx,
                visit.principal,
                email=form["email"].strip(),
                password=password,
                role=_read_role(form),
                tenant_id=visit.tenant_id,
            )
    except NOT_ADDED as error:
        return visit.page("member_new.html", status=422, **await _form_facts(visit, form, error))
    return _answer_with_password(visit, user, form, password, f"{user.email} can sign in now.")


async def _invite(visit: Visit, form: Mapping[str, str]) -> Response:
    async with visit.transaction(as_system=True) as tx:
        user = await invitations.invite(
            tx,
            visit.principal,
            _mailer(visit),
            email=form["email"].strip(),
            role=_read_role(form),
            tenant_id=visit.tenant_id,
        )
    return visit.respond(f"An invitation to {user.email} is on its way.", to=visit.to("/members"))


@router.post("/members/{user_id}/invite")
async def invite_again(user_id: UUID, visit: Manager) -> Response:
    """Send an invitation again."""
    async with visit.transaction(as_system=True) as tx:
        user = await invitations.invite_again(tx, visit.principal, _mailer(visit), user_id)
    return visit.respond(f"Another invitation to {user.email} is on its way. The earlier link has ended.")


@router.post("/members/{user_id}/withdraw")
async def withdraw(user_id: UUID, visit: Manager) -> Response:
    """Withdraw an invitation."""
    user = await _find_user(visit, user_id)
    async with visit.transaction(as_system=True) as tx:
        await invitations.withdraw(tx, visit.principal, user_id)
    return visit.respond(f"The invitation of {user.email} is withdrawn.", to=visit.to("/members"))


@router.get("/members/{user_id}")
async def show_member(user_id: UUID, visit: Manager) -> Response:
    """A member's page."""
    user = await _find_user(visit, user_id)
    sign_ins: OidcSignIns = visit.current_request.app.state.oidc
    async with visit.transaction(as_system=True) as tx:
        linked = await identities.list_of_user(tx, visit.principal, user_id, sign_ins.providers)
    return visit.page(
        "member.html",
        user=user,
        identities=linked,
        label=sign_ins.label_identity,
        own=_is_own(visit, user),
        roles=_list_roles(visit, user),
        words=roles.DESCRIPTIONS,
        values=NEW_MEMBER,
        error=None,
        now=datetime.now(UTC),
    )


@router.post("/members/{user_id}/role")
async def change_role(user_id: UUID, visit: Manager) -> Response:
    """Give a member another role."""
    user = await _find_user(visit, user_id)
    if _is_own(visit, user):
        raise InvalidInput("You can't change your own role. Ask another admin.", [Fault("role", "your own")])
    role = _read_role(await visit.form())
    async with visit.transaction() as tx:
        await access.change_user(tx, visit.principal, user_id, role=role)
    told = f"{user.email} is now {_with_article(role)} and must sign in again."
    return visit.respond(told, to=visit.to(f"/members/{user_id}"))


@router.post("/members/{user_id}/password")
async def set_password(user_id: UUID, visit: Manager) -> Response:
    """Give a member another password."""
    user = await _find_user(visit, user_id)
    form = NEW_MEMBER | await visit.form()
    try:
        password = _read_password(form)
        async with limit_hashing(visit.current_request, has_password=True), visit.transaction() as tx:
            await access.change_user(tx, visit.principal, user_id, password=password)
    except InvalidInput as error:
        return visit.page(
            "member_password.html", status=422, user=user, own=_is_own(visit, user), values=form, error=error
        )
    return _answer_with_password(visit, user, form, password, f"{user.email} has a new password.")


@router.post("/members/{user_id}/disable")
async def disable(user_id: UUID, visit: Manager) -> Response:
    """Disable a member."""
    user = await _find_user(visit, user_id)
    if _is_own(visit, user):
        raise InvalidInput(
            "You can't disable yourself. Ask another admin.",
            [Fault("id", "your own")],
        )
    await _set_disabled(visit, user_id, disabled=True)
    return visit.respond(
        f"{user.email} is disabled and signed out.", undo=_member_url(visit, user, "/enable")
    )


@router.post("/members/{user_id}/enable")
async def enable(user_id: UUID, visit: Manager) -> Response:
    """Enable a member again."""
    user = await _find_user(visit, user_id)
    await _set_disabled(visit, user_id, disabled=False)
    return visit.respond(f"{user.email} can sign in again.", undo=_member_url(visit, user, "/disable"))


@router.post("/members/{user_id}/sign-out")
async def sign_out(user_id: UUID, visit: Manager) -> Response:
    """End all sessions of a member."""
    user = await _find_user(visit, user_id)
    async with visit.transaction() as tx:
        count = await access.sign_out_user(tx, visit.principal, user_id)
    return visit.respond(f"{user.email} signed out of {count} session{'' if count == 1 else 's'}.")


@router.post("/members/{user_id}/remove-second-factor")
async def remove_second_factor(user_id: UUID, visit: Manager) -> Response:
    """Remove the second factor of a member who has lost it."""
    user = await _find_user(visit, user_id)
    async with visit.transaction() as tx:
        await second_factor.remove(tx, visit.principal, user_id)
    return visit.respond(f"Second factor of {user.email} removed. They must sign in again.")


@router.post("/members/{user_id}/identities/{identity_id}/unlink")
async def unlink_identity(request: Request, user_id: UUID, identity_id: UUID, visit: Manager) -> Response:
    """Unlink an identity from a member. The form says whether it may be the only way to sign in."""
    user = await _find_user(visit, user_id)
    form = await visit.form()
    sign_ins: OidcSignIns = request.app.state.oidc
    async with visit.transaction(as_system=True) as tx:
        unlinked = await identities.unlink(
            tx,
            visit.principal,
            user_id,
            identity_id,
            sign_ins.providers,
            even_if_only=form.get("even_if_only") == "yes",
            session=session_secret(request),
        )
    told = f"{user.email} unlinked from {sign_ins.label_identity(unlinked.identity)}."
    if not unlinked.is_signed_out:
        return visit.respond(told, to=_member_url(visit, user))
    return delete_session_cookie(request, visit.respond(told, to=page_url(request, "/sign-in", None, {})))


@router.post("/members/{user_id}/revoke-tokens")
async def revoke_tokens(user_id: UUID, visit: TokenManager) -> Response:
    """Revoke every token that a member created."""
    user = await _find_user(visit, user_id)
    async with visit.transaction() as tx:
        count = await access.revoke_tokens_of(tx, visit.principal, user_id)
    return visit.respond(f"{count} token{'' if count == 1 else 's'} of {user.email} revoked.")


async def _set_disabled(visit: Visit, user_id: UUID, *, disabled: bool) -> None:
    async with visit.transaction() as tx:
        await access.change_user(tx, visit.principal, user_id, disabled=disabled)


async def _find_user(visit: Visit, user_id: UUID) -> User:
    async with visit.transaction() as tx:
        return await access.find_user(tx, visit.principal, str(user_id))


def _answer_with_password(
    visit: Visit, user: User, form: Mapping[str, str], password: str, told: str
) -> Response:
    """The response after a password was set. Only this response contains a generated password."""
    if form["how"] != "generated":
        return visit.respond(told, to=_member_url(visit, user))
    answer = visit.page("member_password_shown.html", user=user, password=password, told=told)
    answer.headers["HX-Trigger"] = render.header_json({"fairlead:refresh": {}})
    return answer


def _read_password(form: Mapping[str, str]) -> str:
    if form["how"] == "generated":
        return secrets.token_urlsafe(GENERATED_BYTES)
    password = form.get("password", "")
    if password != form.get("again", ""):
        raise InvalidInput("The two passwords differ.", [Fault("again", "is not the same")])
    return password


def _read_role(form: Mapping[str, str]) -> Role:
    role = roles.find_role(form.get("role", ""))
    if role is None:
        raise InvalidInput("Choose a role.", [Fault("role", "choose one")])
    return role


def _list_roles(visit: Visit, user: User) -> list[Role]:
    """The roles that this member may have."""
    if user.tenant_id is None:
        return [Role.SUPER_ADMIN]
    return (
        [Role.VIEWER, Role.OPERATOR, Role.TENANT_ADMIN]
        if visit.tenant_id is None
        else roles.list_member_roles(visit)
    )


async def _form_facts(
    visit: Visit, values: Mapping[str, str] | None = None, error: FairleadError | None = None
) -> dict[str, Any]:
    """The variables of the form for a new member."""
    may_invite = await can_mail(visit.fl)
    return {
        "values": values or (NEW_MEMBER | ({"how": INVITED} if may_invite else {})),
        "error": error,
        "offered": [(one, one) for one in roles.list_member_roles(visit)],
        "may_invite": may_invite,
    }


def _mailer(visit: Visit) -> Mailer:
    return Mailer(visit.fl.settings, visit.fl.catalog)


def _is_own(visit: Visit, user: User) -> bool:
    return visit.principal.id == user.id


def _member_url(visit: Visit, user: User, path: str = "") -> str:
    return visit.to(f"/members/{user.id}{path}")


def _with_article(role: Role) -> str:
    return f"{'an' if role is Role.OPERATOR else 'a'} {role.replace('_', ' ')}"
