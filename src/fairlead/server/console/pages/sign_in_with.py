"""Sign-in and sign-out with an identity provider."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from fairlead.errors import (
    AddressNotAllowed,
    FairleadError,
    InvalidInput,
    ProviderFailed,
    SignInRefused,
    TooManyRequests,
)
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render
from fairlead.server.console.pages.sign_in import Public, next_url, render_form
from fairlead.server.console.visit import read_form_fields
from fairlead.server.left_requests import go_on_without_client
from fairlead.server.oidc import OidcSignIns, forget_browser, forget_hint, keep_hint
from fairlead.server.sessions import set_session_cookie

router = APIRouter(route_class=GuardedRoute)


@router.get("/sign-in/with/{provider}")
async def begin(request: Request, provider: str, _: Public) -> Response:
    """Send the browser to the identity provider."""
    sign_ins: OidcSignIns = request.app.state.oidc
    wanted = request.query_params.get("next") or ""
    try:
        return await sign_ins.begin(request, provider, wanted)
    except (ProviderFailed, TooManyRequests) as error:
        return await render_form(request, next_page=wanted, error=error)


@router.get("/sign-in/with/{provider}/callback")
async def finish(request: Request, provider: str, _: Public) -> Response:
    """Receive the browser from the identity provider, and begin a session."""
    sign_ins: OidcSignIns = request.app.state.oidc
    try:
        with go_on_without_client():  # the provider's code works once
            finished = await sign_ins.finish(request, provider)
    except (AddressNotAllowed, ProviderFailed, SignInRefused, TooManyRequests) as error:
        return forget_browser(request, await render_form(request, next_page="", error=error))
    answer = RedirectResponse(next_url(request, finished.next_page), status_code=303)
    keep_hint(request, forget_browser(request, answer), provider, finished.id_token)
    return set_session_cookie(request, answer, finished.secret)


@router.get("/sign-in/with/{provider}/sign-out")
async def leave(request: Request, provider: str, _: Public) -> Response:
    """The page after sign-out, from which the browser goes on to sign out of the identity provider."""
    sign_ins: OidcSignIns = request.app.state.oidc
    try:
        url = await sign_ins.sign_out_url(request, provider)
    except ProviderFailed:  # the session here has ended in any case
        url = None
    text = render.render_page("signed_out.html", request, label=sign_ins.find_label(provider), url=url)
    return forget_hint(request, HTMLResponse(text), provider)


@router.post("/sign-in/with/{provider}/logout")
async def end_by_provider(request: Request, provider: str, _: Public) -> Response:
    """Back-channel logout: the identity provider ends sessions with a signed logout token."""
    sign_ins: OidcSignIns = request.app.state.oidc
    given = await read_form_fields(request)
    tokens = [value for name, value in given if name == "logout_token"]
    try:
        if len(tokens) != 1:
            raise InvalidInput("Send one logout_token, as a form.")  # noqa: TRY301
        await sign_ins.end_by_provider(request, provider, tokens[0])
    except (InvalidInput, SignInRefused) as error:
        return _refuse_logout(error)
    return Response(status_code=200)


def _refuse_logout(error: FairleadError) -> Response:
    """As Back-Channel Logout 2.8 describes it."""
    body = {"error": "invalid_request", "error_description": error.message}
    return JSONResponse(body, status_code=400)
