"""Sign-in and sign-out."""

import contextlib
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from fairlead.actions import passwords
from fairlead.errors import FairleadError, TooManyRequests, Unauthenticated
from fairlead.server.auth import Gatekeeper, GuardedRoute, PublicAccess, refuse_unreadable, session_secret
from fairlead.server.console import render
from fairlead.server.console.visit import page_url, read_form_fields
from fairlead.server.sessions import set_session_cookie, sign_in, sign_out

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
                return RedirectResponse(_next_url(request, request.query_params.get("next")), status_code=303)
    return _render_form(request, next_page=request.query_params.get("next") or "")


@router.post("/sign-in")
async def start_session(request: Request, _: Public) -> Response:
    """Begin a session."""
    given = dict(await read_form_fields(request))
    try:
        _who, secret = await sign_in(
            request, given.get("email", "")[:300], given.get("password", "")[: passwords.LONGEST_PASSWORD]
        )
    except (Unauthenticated, TooManyRequests) as error:
        return _render_form(
            request, next_page=given.get("next", ""), email=given.get("email", ""), error=error
        )
    return set_session_cookie(
        request, RedirectResponse(_next_url(request, given.get("next")), status_code=303), secret
    )


@router.post("/sign-out")
async def end_session(request: Request, _: Public) -> Response:
    """End the session."""
    return await sign_out(request, RedirectResponse(page_url(request, "/sign-in", None, {}), status_code=303))


def _render_form(
    request: Request, *, next_page: str, email: str = "", error: FairleadError | None = None
) -> HTMLResponse:
    text = render.render_page("sign_in.html", request, next_page=next_page, email=email, error=error)
    return HTMLResponse(text, status_code=200 if error is None else error.http_status)


def _next_url(request: Request, wanted: str | None) -> str:
    """The URL of the next page, which must be a console page: no redirects to other sites."""
    plain = (
        wanted
        if wanted and wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted
        else "/overview"
    )
    return f"{request.scope.get('root_path', '')}{plain}"
