"""The visitor's own account: password, how times are shown, and sessions."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import account, oidc, second_factor
from fairlead.errors import (
    Fault,
    InvalidInput,
    PasswordNotSet,
    PasswordWrong,
    Refused,
    TimezoneUnknown,
    TooManyRequests,
)
from fairlead.model.account import HourCycle, Preferences
from fairlead.model.schedule.zone import list_zone_names
from fairlead.server.auth import GuardedRoute, session_secret
from fairlead.server.console import roles
from fairlead.server.console.visit import RequiresVisit, Visit, page_url
from fairlead.server.oidc import OidcSignIns
from fairlead.server.sessions import change_password, own_transaction, sign_out_everywhere

router = APIRouter(route_class=GuardedRoute)

# every user has an account
Visitor = Annotated[Visit, Depends(RequiresVisit(None, everywhere=True))]

HOUR_CYCLES = (
    ("", "As the browser does"),
    (HourCycle.H23, "24 hours (13:00)"),
    (HourCycle.H12, "12 hours (1:00 pm)"),
)


@router.get("/account")
async def show(request: Request, visit: Visitor) -> Response:
    """The account's page."""
    async with own_transaction(visit) as tx:
        own = await account.get(tx, visit.principal)
        sessions = await account.list_sessions(tx, visit.principal, session_secret(request))
        factor = await second_factor.get(
            tx, visit.principal, required_roles=visit.fl.settings.require_second_factor
        )
        names = await oidc.list_providers(tx, own.id)
    sign_ins: OidcSignIns = request.app.state.oidc
    return visit.page(
        "account.html",
        account=own,
        factor=factor,
        providers=[sign_ins.find_label(name) for name in names],
        sessions=sessions,
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
