"""Forgotten passwords and invitations: pages for people who are not signed in."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fairlead.actions import passwords
from fairlead.errors import (
    AccountLinkInvalid,
    AddressNotAllowed,
    FairleadError,
    Fault,
    InvalidInput,
    SignInRefused,
    TooManyRequests,
)
from fairlead.library.app import Fairlead
from fairlead.model.account_link import LinkPurpose
from fairlead.server.account_links import accept_invitation, can_mail, confirm_reset, request_reset
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.pages.sign_in import PublicPage
from fairlead.server.console.visit import page_url, read_form_fields, respond_to_action
from fairlead.server.sessions import set_session_cookie

router = APIRouter(route_class=GuardedRoute)

Public = Annotated[None, Depends(PublicPage())]

LONGEST_LINK = 2000


@router.get("/forgot-password")
async def show_request(request: Request, _: Public) -> Response:
    """The form that asks for a link."""
    fl: Fairlead = request.app.state.fl
    if not await can_mail(fl):
        return RedirectResponse(page_url(request, "/sign-in", None, {}), status_code=303)
    return _render(request, "forgot_password.html", email="", sent=False)


@router.post("/forgot-password")
async def ask_for_link(request: Request, _: Public) -> Response:
    """Mail a link to each account of the address. The page says the same if there is none."""
    fl: Fairlead = request.app.state.fl
    email = dict(await read_form_fields(request)).get("email", "").strip()[:300]
    try:
        work = await request_reset(request, email)
    except TooManyRequests as error:
        return _render(request, "forgot_password.html", error, email=email, sent=False)
    answer = _render(
        request, "forgot_password.html", email=email, sent=True, minutes=fl.settings.reset_minutes
    )
    answer.background = work
    return answer


@router.get("/reset-password")
async def show_reset(request: Request, _: Public) -> Response:
    """The form for a new password. The link's secret is in the fragment of the address: only a script or a person reads it."""
    return _render_link(request, LinkPurpose.RESET)


@router.post("/reset-password")
async def reset_password(request: Request, _: Public) -> Response:
    """Set a new password."""
    form = dict(await read_form_fields(request))
    try:
        await confirm_reset(request, _read_code(form), _read_password(form))
    except (InvalidInput, AccountLinkInvalid, TooManyRequests) as error:
        return _render_link(request, LinkPurpose.RESET, form, error)
    told = "Your password is changed. Sign in with it."
    return respond_to_action(request, told, to=page_url(request, "/sign-in", None, {}))


@router.get("/invitation")
async def show_invitation(request: Request, _: Public) -> Response:
    """The form for the first password of an invited person."""
    return _render_link(request, LinkPurpose.INVITATION)


@router.post("/invitation")
async def accept(request: Request, _: Public) -> Response:
    """Accept an invitation, and begin a session."""
    form = dict(await read_form_fields(request))
    try:
        principal, secret = await accept_invitation(request, _read_code(form), _read_password(form))
    except (AccountLinkInvalid, AddressNotAllowed, InvalidInput, SignInRefused, TooManyRequests) as error:
        return _render_link(request, LinkPurpose.INVITATION, form, error)
    told = f"Welcome. You sign in as {principal.actor.removeprefix('user:')}."
    answer = respond_to_action(request, told, to=page_url(request, "/overview", None, {}))
    return set_session_cookie(request, answer, secret)


def _read_code(form: dict[str, str]) -> str:
    """The secret, also of a whole link that was pasted."""
    return form.get("token", "")[:LONGEST_LINK].rpartition("#")[2].strip()


def _read_password(form: dict[str, str]) -> str:
    password = form.get("new_password", "")[: passwords.LONGEST_PASSWORD + 1]
    if password != form.get("again", ""):
        raise InvalidInput("The two passwords differ.", [Fault("again", "is not the same")])
    return password


def _render_link(
    request: Request,
    purpose: LinkPurpose,
    form: dict[str, str] | None = None,
    error: FairleadError | None = None,
) -> HTMLResponse:
    # the secret of a link that does not work is not shown again
    code = "" if form is None or isinstance(error, AccountLinkInvalid) else _read_code(form)
    return _render(request, "set_password.html", error, code=code, invited=purpose is LinkPurpose.INVITATION)


def _render(
    request: Request, template: str, error: FairleadError | None = None, **facts: object
) -> HTMLResponse:
    text = render.render_page(template, request, error=error, **facts)
    return HTMLResponse(text, status_code=200 if error is None else error.http_status)
