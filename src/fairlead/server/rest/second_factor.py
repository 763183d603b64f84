"""The second factor of the user who has signed in, and its removal by an admin."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import Field, SecretStr

from fairlead.actions import passwords, second_factor
from fairlead.model.access import Permission
from fairlead.model.second_factor import LONGEST_CODE, SecondFactor
from fairlead.server.auth import Caller, GuardedRoute, Requires, session_secret
from fairlead.server.problems import PREFIX
from fairlead.server.second_factor import change_own
from fairlead.server.sessions import own_transaction
from fairlead.server.views import Body, View

router = APIRouter(route_class=GuardedRoute, prefix=PREFIX, tags=["session"])

User = Annotated[Caller, Depends(Requires(None, everywhere=True))]
# also a user who must set up a second factor before anything else
UserInSetup = Annotated[Caller, Depends(Requires(None, everywhere=True, during_setup=True))]
Manager = Annotated[Caller, Depends(Requires(Permission.MANAGE_USERS))]


class SetupBody(Body):
    """The user's password."""

    password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)


class ConfirmBody(Body):
    """The first code of the authenticator app."""

    code: SecretStr = Field(max_length=LONGEST_CODE)


class AuthoriseBody(Body):
    """The user's password, and a code of the authenticator app or a recovery code."""

    password: SecretStr = Field(max_length=passwords.LONGEST_PASSWORD)
    code: SecretStr = Field(max_length=LONGEST_CODE)


class SetupView(View):
    """The key of a set-up that has begun. Only this response contains it."""

    key: str
    uri: str = Field(description="What an authenticator app reads from a QR code: otpauth://…")


class RecoveryCodesView(View):
    """New recovery codes, each valid once. Only this response contains them."""

    recovery_codes: list[str]


class EnabledView(RecoveryCodesView):
    """The recovery codes of the new second factor, and how many other sessions were ended."""

    sessions_ended: int


class RemovedView(View):
    """How many other sessions of the user were ended."""

    sessions_ended: int


@router.get("/account/second-factor")
async def show(caller: UserInSetup) -> SecondFactor:
    """Show whether the user has a second factor, and needs one. For users who have signed in."""
    async with own_transaction(caller) as tx:
        return await second_factor.get(
            tx, caller.principal, required_roles=caller.fl.settings.require_second_factor
        )


@router.post("/account/second-factor")
async def begin(request: Request, body: SetupBody, caller: UserInSetup) -> SetupView:
    """Begin the set-up: a key for the authenticator app. Nothing changes until it is confirmed, within an hour."""
    password = body.password.get_secret_value()
    made = await change_own(
        request, caller, lambda tx: second_factor.begin(tx, caller.principal, password=password)
    )
    return SetupView(key=made.key, uri=made.uri)


@router.post("/account/second-factor/confirm")
async def confirm(request: Request, body: ConfirmBody, caller: UserInSetup) -> EnabledView:
    """Activate the second factor with its first code: returns recovery codes, and ends the user's other sessions."""
    code = body.code.get_secret_value()
    made = await change_own(
        request,
        caller,
        lambda tx: second_factor.confirm(tx, caller.principal, code=code, session=session_secret(request)),
    )
    return EnabledView(recovery_codes=made.recovery_codes, sessions_ended=made.sessions_ended)


@router.post("/account/second-factor/recovery-codes")
async def renew_recovery_codes(request: Request, body: AuthoriseBody, caller: User) -> RecoveryCodesView:
    """Replace the recovery codes: the old ones are no longer valid."""
    password, code = body.password.get_secret_value(), body.code.get_secret_value()
    codes = await change_own(
        request,
        caller,
        lambda tx: second_factor.renew_recovery_codes(tx, caller.principal, password=password, code=code),
    )
    return RecoveryCodesView(recovery_codes=codes)


@router.delete("/account/second-factor")
async def remove_own(request: Request, body: AuthoriseBody, caller: User) -> RemovedView:
    """Remove one's own second factor: needs the password and a code, and ends the user's other sessions."""
    password, code = body.password.get_secret_value(), body.code.get_secret_value()
    session = session_secret(request)
    ended = await change_own(
        request,
        caller,
        lambda tx: second_factor.remove_own(
            tx, caller.principal, password=password, code=code, session=session
        ),
    )
    return RemovedView(sessions_ended=ended)


@router.delete("/users/{user_id}/second-factor", status_code=204)
async def remove(user_id: UUID, caller: Manager) -> Response:
    """Remove the second factor of a user who has lost it: ends the user's sessions. Not one's own."""
    async with caller.transaction() as tx:
        await second_factor.remove(tx, caller.principal, user_id)
    return Response(status_code=204)
