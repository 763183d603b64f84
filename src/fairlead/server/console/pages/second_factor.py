"""The visitor's second factor: set it up, renew the recovery codes, remove it."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import account, passwords, second_factor
from fairlead.errors import (
    PasswordNotSet,
    PasswordWrong,
    Refused,
    SecondFactorExists,
    SecondFactorMissing,
    SecondFactorWrong,
    TooManyRequests,
)
from fairlead.model.second_factor import LONGEST_CODE
from fairlead.server.auth import Gatekeeper, GuardedRoute, session_secret
from fairlead.server.console.pages.sign_in import next_url
from fairlead.server.console.qr_code import draw_qr_code
from fairlead.server.console.visit import RequiresVisit, Visit, is_htmx
from fairlead.server.second_factor import change_own
from fairlead.server.sessions import own_transaction

router = APIRouter(route_class=GuardedRoute)

Visitor = Annotated[Visit, Depends(RequiresVisit(None, everywhere=True))]
# also one who must set up a second factor before anything else
VisitorInSetup = Annotated[Visit, Depends(RequiresVisit(None, everywhere=True, during_setup=True))]

PAGE = "/account/second-factor"
REFUSALS = (
    PasswordNotSet,
    PasswordWrong,
    SecondFactorExists,
    SecondFactorMissing,
    SecondFactorWrong,
    TooManyRequests,
)


@router.get("/account/second-factor")
async def show(request: Request, visit: VisitorInSetup) -> Response:
    """The second factor's page."""
    return await _render(visit, "second_factor_state.html", next_page=request.query_params.get("next") or "")


@router.post("/account/second-factor")
async def begin(request: Request, visit: VisitorInSetup) -> Response:
    """Begin the set-up: the response alone contains the key."""
    form = await visit.form()
    password = form.get("password", "")[: passwords.LONGEST_PASSWORD]
    next_page = form.get("next", "")
    try:
        made = await change_own(
            request, visit, lambda tx: second_factor.begin(tx, visit.principal, password=password)
        )
    except REFUSALS as error:
        return await _render(visit, "second_factor_state.html", error, "set-up", next_page=next_page)
    groups = " ".join(made.key[at : at + 4] for at in range(0, len(made.key), 4))
    drawing = draw_qr_code(made.uri, "QR code for your authenticator app")
    return await _render(
        visit, "second_factor_setup.html", key=made.key, groups=groups, drawing=drawing, next_page=next_page
    )


@router.post("/account/second-factor/confirm")
async def confirm(request: Request, visit: VisitorInSetup) -> Response:
    """Activate the second factor, and show the recovery codes."""
    form = await visit.form()
    code, next_page = form.get("code", "")[:LONGEST_CODE], form.get("next", "")
    try:
        made = await change_own(
            request,
            visit,
            lambda tx: second_factor.confirm(tx, visit.principal, code=code, session=session_secret(request)),
        )
    except REFUSALS as error:  # only the form: the key is on the page, and in no other response
        return await _render(visit, "second_factor_confirm.html", error, next_page=next_page)
    told = "Your second factor is active."
    if made.sessions_ended:
        told += f" {made.sessions_ended} other session{'' if made.sessions_ended == 1 else 's'} signed out."
    return await _render_codes(visit, made.recovery_codes, told, next_page)


@router.post("/account/second-factor/recovery-codes")
async def renew_recovery_codes(request: Request, visit: Visitor) -> Response:
    """Replace the recovery codes, and show the new ones."""
    form = await visit.form()
    password, code = _read_proof(form)
    try:
        codes = await change_own(
            request,
            visit,
            lambda tx: second_factor.renew_recovery_codes(tx, visit.principal, password=password, code=code),
        )
    except REFUSALS as error:
        return await _render(visit, "second_factor_state.html", error, "renew")
    return await _render_codes(visit, codes, "The old recovery codes are no longer valid.", "")


@router.post("/account/second-factor/remove")
async def remove(request: Request, visit: Visitor) -> Response:
    """Remove the visitor's own second factor."""
    form = await visit.form()
    password, code = _read_proof(form)
    session = session_secret(request)
    try:
        await change_own(
            request,
            visit,
            lambda tx: second_factor.remove_own(
                tx, visit.principal, password=password, code=code, session=session
            ),
        )
    except REFUSALS as error:
        return await _render(visit, "second_factor_state.html", error, "remove")
    return visit.respond("Second factor removed. Your other sessions are signed out.", to=visit.to(PAGE))


def _read_proof(form: dict[str, str]) -> tuple[str, str]:
    return form.get("password", "")[: passwords.LONGEST_PASSWORD], form.get("code", "")[:LONGEST_CODE]


async def _render_codes(visit: Visit, codes: Sequence[str], told: str, next_page: str) -> Response:
    """The recovery codes; only this response contains them."""
    answer = await _render(visit, "second_factor_codes.html", codes=codes, told=told, next_page=next_page)
    answer.headers["HX-Retarget"] = "#second-factor"
    answer.headers["HX-Reswap"] = "innerHTML"
    return answer


async def _render(
    visit: Visit, part: str, error: Refused | None = None, failed: str = "", **facts: Any
) -> Response:
    """The page with this part, or only the part for htmx; `failed` is the form that the error is about."""
    request = visit.current_request
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    async with own_transaction(visit) as tx:
        own = await account.get(tx, visit.principal)
        factor = await second_factor.get(
            tx, visit.principal, required_roles=visit.fl.settings.require_second_factor
        )
    next_page = facts.pop("next_page", "")
    return visit.page(
        part if is_htmx(request) else "second_factor.html",
        status=200 if error is None else error.http_status,
        part=part,
        account=own,
        factor=factor,
        is_alone=gatekeeper.must_set_up(visit.principal),
        error=error,
        failed=failed,
        next_page=next_page,
        onward=next_url(request, next_page) if next_page else visit.to("/account"),
        **facts,
    )
