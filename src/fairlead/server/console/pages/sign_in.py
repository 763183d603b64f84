"""Sign-in and sign-out."""

import contextlib
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fairlead.actions import passwords
from fairlead.errors import (
    AddressNotAllowed,
    FairleadError,
    SecondFactorRequired,
    TooManyRequests,
    Unauthenticated,
)
from fairlead.model.second_factor import LONGEST_CODE
from fairlead.server.account_links import can_mail
from fairlead.server.auth import Gatekeeper, GuardedRoute, PublicAccess, refuse_unreadable, session_secret
from fairlead.server.console import render
from fairlead.server.console.visit import page_url, read_form_fields
from fairlead.server.oidc import OidcSignIns
from fairlead.server.second_factor import (
    delete_pending_cookie,
    find_pending_email,
    finish_sign_in,
    set_pending_cookie,
)
from fairlead.server.sessions import begin_sign_in, set_session_cookie, sign_out

router = APIRouter(route_class=GuardedRoute)


class PublicPage(PublicAccess):
    """A page without authentication that accepts unknown parameters."""

    def check_address(self, request: Request) -> None:
        """Accept unknown parameters: any page redirects here."""
        refuse_unreadable(request)


Public = Annotated[None, Depends(PublicPage())]


@router.get("/sign-in")
async def show_form(request: Request, _: Public) -> Response:
    """The sign-in form."""
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    if secret := session_secret(request):
        # show the form even if this address has sent too many forged cookies
        with contextlib.suppress(TooManyRequests):
            if await gatekeeper.signed_in(request, secret) is not None:
                return RedirectResponse(next_url(request, request.query_params.get("next")), status_code=303)
    return await render_form(request, next_page=request.query_params.get("next") or "")


@router.post("/sign-in")
async def start_session(request: Request, _: Public) -> Response:
    """Begin a session."""
    given = dict(await read_form_fields(request))
    next_page = given.get("next", "")
    try:
        outcome = await begin_sign_in(
            request, given.get("email", "")[:300], given.get("password", "")[: passwords.LONGEST_PASSWORD]
        )
    except (AddressNotAllowed, Unauthenticated, TooManyRequests) as error:
        return await render_form(request, next_page=next_page, email=given.get("email", ""), error=error)
    if outcome.pending is not None:
        to = page_url(request, "/sign-in/code", None, {"next": next_page})
        return set_pending_cookie(request, RedirectResponse(to, status_code=303), outcome.pending)
    return _enter(request, next_page, outcome.secret)


@router.get("/sign-in/code")
async def show_code_form(request: Request, _: Public) -> Response:
    """The second page of a sign-in: the code of the second factor."""
    next_page = request.query_params.get("next") or ""
    email = await find_pending_email(request)
    if email is None:
        return RedirectResponse(page_url(request, "/sign-in", None, {"next": next_page}), status_code=303)
    return _render_code_form(request, next_page=next_page, email=email)


@router.post("/sign-in/code")
async def check_code(request: Request, _: Public) -> Response:
    """Begin a session after the right code."""
    given = dict(await read_form_fields(request))
    next_page, email = given.get("next", ""), await find_pending_email(request) or ""
    try:
        _who, secret = await finish_sign_in(request, given.get("code", "")[:LONGEST_CODE])
    except Unauthenticated as error:  # from the beginning
        return delete_pending_cookie(request, await render_form(request, next_page=next_page, error=error))
    except (AddressNotAllowed, SecondFactorRequired, TooManyRequests) as error:
        return _render_code_form(request, next_page=next_page, email=email, error=error)
    return delete_pending_cookie(request, _enter(request, next_page, secret))


@router.post("/sign-out")
async def end_session(request: Request, _: Public) -> Response:
    """End the session; one that began with an identity provider goes on to the provider's sign-out."""
    sign_ins: OidcSignIns = request.app.state.oidc
    provider = await sign_ins.find_session_provider(request)
    path = "/sign-in" if provider is None else f"/sign-in/with/{provider}/sign-out"
    return await sign_out(request, RedirectResponse(page_url(request, path, None, {}), status_code=303))


def _enter(request: Request, next_page: str, secret: str | None) -> Response:
    """Go to the next page with the cookie of a new session."""
    to = RedirectResponse(next_url(request, next_page), status_code=303)
    return to if secret is None else set_session_cookie(request, to, secret)


def _render_code_form(
    request: Request, *, next_page: str, email: str, error: FairleadError | None = None
) -> HTMLResponse:
    text = render.render_page("sign_in_code.html", request, next_page=next_page, email=email, error=error)
    return HTMLResponse(text, status_code=200 if error is None else error.http_status)


async def render_form(
    request: Request, *, next_page: str, email: str = "", error: FairleadError | None = None
) -> HTMLResponse:
    """The sign-in page, with an error that the visitor must know."""
    sign_ins: OidcSignIns = request.app.state.oidc
    can_reset = await can_mail(request.app.state.fl)
    text = render.render_page(
        "sign_in.html",
        request,
        next_page=next_page,
        email=email,
        error=error,
        can_reset=can_reset,
        providers=sign_ins.providers,
    )
    return HTMLResponse(text, status_code=200 if error is None else error.http_status)


def next_url(request: Request, wanted: str | None) -> str:
    """The URL of the next page, which must be a console page: no redirects to other sites."""
    plain = (
        wanted
        if wanted and wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted
        else "/overview"
    )
    return f"{request.scope.get('root_path', '')}{plain}"
