"""The visitor's own account: password, how times are shown, and sessions."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import account, identities, personal_tokens, second_factor
from fairlead.actions.token_limits import LONGEST_DAYS
from fairlead.errors import (
    Fault,
    InvalidInput,
    PasswordNotSet,
    PasswordWrong,
    Refused,
    TimezoneUnknown,
    TooManyRequests,
    TooManyTokens,
)
from fairlead.model.access import Token
from fairlead.model.account import HourCycle, Preferences
from fairlead.model.schedule.zone import list_zone_names
from fairlead.server.auth import GuardedRoute, session_secret
from fairlead.server.console import roles
from fairlead.server.console.pages.tokens import read_words
from fairlead.server.console.visit import RequiresVisit, Visit, page_url
from fairlead.server.oidc import OidcSignIns
from fairlead.server.sessions import (
    change_password,
    delete_session_cookie,
    own_transaction,
    sign_out_everywhere,
)

router = APIRouter(route_class=GuardedRoute)

# every user has an account
Visitor = Annotated[Visit, Depends(RequiresVisit(None, everywhere=True))]

NEW_TOKEN = {"name": "", "role": "", "days": "", "scopes": "", "addresses": ""}
# The days that a personal token may be valid, as far as the setting allows.
LIVES = (1, 7, 30, 90, 365)
HOUR_CYCLES = (
    ("", "As the browser does"),
    (HourCycle.H23, "24 hours (13:00)"),
    (HourCycle.H12, "12 hours (1:00 pm)"),
)


@router.get("/account")
async def show(request: Request, visit: Visitor) -> Response:
    """The account's page."""
    sign_ins: OidcSignIns = request.app.state.oidc
    async with own_transaction(visit) as tx:
        own = await account.get(tx, visit.principal)
        sessions = await account.list_sessions(tx, visit.principal, session_secret(request))
        tokens = await personal_tokens.list_own(tx, visit.principal)
        factor = await second_factor.get(
            tx, visit.principal, required_roles=visit.fl.settings.require_second_factor
        )
        linked = await identities.list_own(tx, visit.principal, sign_ins.providers)
    return visit.page(
        "account.html",
        account=own,
        factor=factor,
        identities=linked,
        label=sign_ins.label_identity,
        providers=[sign_ins.label_identity(one) for one in linked],
        sessions=sessions,
        **_token_facts(visit, tokens),
        role_words=roles.DESCRIPTIONS[own.role],
        zones=sorted(list_zone_names()),
        hour_cycles=HOUR_CYCLES,
        values={"timezone": own.timezone or "", "hour_cycle": own.hour_cycle or ""},
        error=None,
    )


@router.post("/account/password")
async def set_password(request: Request, visit: Visitor) -> Response:
    """Change the visitor's own password."""
    form = await visit.form()
    try:
        ended = await change_password(request, visit, form.get("old_password", ""), _read_new_password(form))
    except (InvalidInput, PasswordNotSet, PasswordWrong, TooManyRequests) as error:
        return await _render_password_form(visit, error)
    others = f" {_count(ended)} signed out." if ended else ""
    return visit.respond(f"Password changed.{others}", to=visit.to("/account"))


@router.post("/account/times")
async def set_times(visit: Visitor) -> Response:
    """Choose how times are shown."""
    form = await visit.form()
    try:
        preferences = _read_preferences(form)
        async with own_transaction(visit) as tx:
            await account.set_preferences(tx, visit.principal, preferences)
    except (InvalidInput, TimezoneUnknown) as error:
        return visit.page(
            "account_times.html",
            status=422,
            values={"timezone": "", "hour_cycle": ""} | form,
            zones=sorted(list_zone_names()),
            hour_cycles=HOUR_CYCLES,
            error=error,
        )
    return visit.respond("Saved.", to=visit.to("/account"))


@router.post("/account/sign-out-others")
async def end_other_sessions(request: Request, visit: Visitor) -> Response:
    """End the visitor's other sessions."""
    async with own_transaction(visit) as tx:
        ended = await account.end_other_sessions(tx, visit.principal, session_secret(request))
    return visit.respond(f"{_count(ended)} signed out.", to=visit.to("/account"))


@router.post("/account/sessions/{session_id}/end")
async def end_session(session_id: UUID, visit: Visitor) -> Response:
    """End one of the visitor's sessions."""
    async with own_transaction(visit) as tx:
        await account.end_session(tx, visit.principal, session_id)
    return visit.respond("Session signed out.", to=visit.to("/account"))


@router.post("/account/sign-out-everywhere")
async def end_all_sessions(request: Request, visit: Visitor) -> Response:
    """End all of the visitor's sessions, also this one."""
    to = page_url(request, "/sign-in", None, {})
    return await sign_out_everywhere(request, visit, visit.respond("Signed out everywhere.", to=to))


@router.post("/account/identities/{identity_id}/unlink")
async def unlink_identity(request: Request, identity_id: UUID, visit: Visitor) -> Response:
    """Unlink one of the visitor's identities, and end the sessions that began with it."""
    sign_ins: OidcSignIns = request.app.state.oidc
    async with own_transaction(visit) as tx:
        unlinked = await identities.unlink_own(
            tx, visit.principal, identity_id, sign_ins.providers, session=session_secret(request)
        )
    told = f"{sign_ins.label_identity(unlinked.identity)} unlinked."
    if not unlinked.is_signed_out:
        return visit.respond(told, to=visit.to("/account"))
    answer = visit.respond(told, to=page_url(request, "/sign-in", None, {}))
    return delete_session_cookie(request, answer)


@router.post("/account/tokens")
async def create_token(visit: Visitor) -> Response:
    """Create a personal token. Only this response contains its secret."""
    form = NEW_TOKEN | await visit.form()
    try:
        async with own_transaction(visit) as tx:
            made = await personal_tokens.create(
                tx,
                visit.principal,
                name=form["name"].strip(),
                role=roles.find_role(form["role"]),
                expires_at=_read_expiry(form["days"]),
                scopes=read_words(form["scopes"]),
                addresses=read_words(form["addresses"]),
                longest_days=visit.fl.settings.personal_token_days,
            )
    except (InvalidInput, TooManyTokens) as error:
        async with own_transaction(visit) as tx:
            tokens = await personal_tokens.list_own(tx, visit.principal)
        return visit.page(
            "account_tokens.html", status=error.http_status, **_token_facts(visit, tokens, form, error)
        )
    async with own_transaction(visit) as tx:
        tokens = await personal_tokens.list_own(tx, visit.principal)
    facts = _token_facts(visit, tokens) | {"made": made.token, "secret": made.secret}
    return visit.page("account_tokens.html", **facts)


@router.post("/account/tokens/{token_id}/revoke")
async def revoke_token(token_id: UUID, visit: Visitor) -> Response:
    """Revoke one of the visitor's personal tokens."""
    async with own_transaction(visit) as tx:
        token = await personal_tokens.revoke(tx, visit.principal, token_id)
    return visit.respond(f"Token {token.name} revoked.", to=visit.to("/account"))


def _token_facts(
    visit: Visit,
    tokens: Sequence[Token],
    values: Mapping[str, str] | None = None,
    error: InvalidInput | TooManyTokens | None = None,
) -> dict[str, Any]:
    """The variables of the list of personal tokens and of its form."""
    return {
        "tokens": tokens,
        "token_values": values or NEW_TOKEN,
        "token_roles": [(one, one.replace("_", " ")) for one in roles.list_own_roles(visit)],
        "token_lives": [
            (days, "a day" if days == 1 else f"{days} days")
            for days in _list_lives(visit.fl.settings.personal_token_days)
        ],
        "token_error": error,
        "longest_days": visit.fl.settings.personal_token_days,
        "made": None,
        "secret": None,
    }


def _list_lives(longest_days: int) -> list[int]:
    """The longest first, which is the default."""
    return sorted(
        {*(days for days in LIVES if days < longest_days), min(longest_days, LONGEST_DAYS)}, reverse=True
    )


def _read_expiry(days: str) -> datetime | None:
    """None for the default."""
    return datetime.now(UTC) + timedelta(days=int(days)) if days.isdecimal() and len(days) <= 4 else None


def _read_new_password(form: Mapping[str, str]) -> str:
    password = form.get("new_password", "")
    if password != form.get("again", ""):
        raise InvalidInput("The two new passwords differ.", [Fault("again", "is not the same")])
    return password


async def _render_password_form(visit: Visit, error: Refused) -> Response:
    async with own_transaction(visit) as tx:
        own = await account.get(tx, visit.principal)
    return visit.page("account_password.html", status=error.http_status, account=own, error=error)


def _read_preferences(form: Mapping[str, str]) -> Preferences:
    zone, hours = form.get("timezone", "").strip() or None, form.get("hour_cycle", "")
    if hours and hours not in list(HourCycle):
        raise InvalidInput("Choose how hours are shown.", [Fault("hour_cycle", "choose one")])
    return Preferences(timezone=zone, hour_cycle=HourCycle(hours) if hours else None)


def _count(sessions: int) -> str:
    return f"{sessions} other session{'' if sessions == 1 else 's'}"
