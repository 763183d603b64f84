"""Links in mails: accept an invitation, reset a forgotten password. For people who are not signed in."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, SecretStr

from fairlead.actions import passwords
from fairlead.library.app import Fairlead
from fairlead.server.account_links import accept_invitation, confirm_reset, request_reset
from fairlead.server.auth import GuardedRoute, PublicAccess
from fairlead.server.problems import PREFIX
from fairlead.server.rest.session import MeView, describe_principal
from fairlead.server.sessions import set_session_cookie
from fairlead.server.views import Body, to_json

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["session"])

Public = Annotated[None, Depends(PublicAccess())]


class ResetBody(Body):
    """The address of an account whose password was forgotten."""

    email: str = Field(max_length=300)


class LinkBody(Body):
    """The secret of a link, which is the part after `#`, and the new password."""

    token: SecretStr = Field(max_length=200)
    new_password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)


@router.post("/password-resets", status_code=202)
async def request_password_reset(request: Request, body: ResetBody, _: Public) -> Response:
    """Mail a link to each account with a password that has this address. The response is the same if there is none."""
    return Response(status_code=202, background=await request_reset(request, body.email))


@router.post("/password-resets/confirm", status_code=204)
async def confirm_password_reset(request: Request, body: LinkBody, _: Public) -> Response:
    """Set a new password with the link of a mail, which works once. Ends all sessions of the user, and starts none."""
    await confirm_reset(request, body.token.get_secret_value(), body.new_password.get_secret_value())
    return Response(status_code=204)


@router.post("/invitations/accept", response_model=MeView)
async def accept(request: Request, body: LinkBody, _: Public) -> JSONResponse:
    """Accept an invitation: sets the password, and signs in as a sign-in does."""
    fl: Fairlead = request.app.state.fl
    principal, secret = await accept_invitation(
        request, body.token.get_secret_value(), body.new_password.get_secret_value()
    )
    me = await describe_principal(fl, principal)
    return set_session_cookie(request, JSONResponse(to_json(me)), secret)
