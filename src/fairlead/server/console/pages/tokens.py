"""Tokens, with which programs authenticate."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import access, hosts, token_rotation
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Role, Token, TokenState
from fairlead.server.auth import GuardedRoute
from fairlead.server.console import render, roles
from fairlead.server.console.lists import after_id, list_page, tenant_slugs
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_TOKENS))]

ROWS = 50
MOST_HOSTS = 500
# Days that a token is valid; empty: until it is revoked.
LIVES = (
    ("1", "a day"),
    ("7", "a week"),
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "a year"),
    ("", "no end"),
)
# Seconds that a rotated token's old secret stays valid.
OVERLAPS = (
    ("0", "not at all"),
    ("3600", "an hour"),
    ("86400", "a day"),
    ("604800", "a week"),
    ("2592000", "30 days"),
)
# For each state: the label, the colour, the icon, and an explanation.
STATES = {
    TokenState.VALID: ("valid", "good", "circle-check", ""),
    TokenState.EXPIRED: ("expired", "warn", "clock", ""),
    TokenState.REVOKED: ("revoked", "canceled", "ban", ""),
    TokenState.MAKER_DISABLED: (
        "maker disabled",
        "warn",
        "user-x",
        "The server refuses it because the user who created it is disabled. It works again if that user is enabled.",
    ),
    TokenState.MAKER_LACKS_ROLE: (
        "maker lacks role",
        "warn",
        "user-x",
        "The server refuses it because the role of the user who created it can no longer grant the token's role.",
    ),
}
NEW_TOKEN = {
    "name": "",
    "role": "",
    "days": "90",
    "host_id": "",
    "definitions": "",
    "scopes": "",
    "addresses": "",
}


@router.get("/tokens")
async def list_tokens(request: Request, visit: Manager) -> Response:
    """The tokens and their last use."""
    async with visit.transaction() as tx:
        found = await access.list_tokens(tx, visit.principal, after=after_id(request), limit=ROWS)
        slugs = await tenant_slugs(tx, visit)
        named = await _list_hosts(tx, visit)
    return visit.page(
        "tokens.html",
        page=list_page(found),
        slugs=slugs,
        hosts=dict(named),
        states=STATES,
        may_rotate=lambda token: _may_rotate(visit, token),
        **_form_facts(visit, named),
    )


@router.post("/tokens")
async def create(visit: Manager) -> Response:
    """Create a token. Only this response contains its secret."""
    form = NEW_TOKEN | await visit.form()
    async with visit.transaction() as tx:
        named = await _list_hosts(tx, visit)
    try:
        role, days, host_id = _read_role(form), _read_days(form), _read_host(form)
        async with visit.transaction() as tx:
            made = await access.create_token(
                tx,
                visit.principal,
                name=form["name"].strip(),
                role=role,
                tenant_id=visit.tenant_id,
                host_id=host_id if role is Role.AGENT else None,
                expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
                only=read_words(form["definitions"]) if role in access.BINDABLE else None,
                scopes=read_words(form["scopes"]),
                addresses=read_words(form["addresses"]),
            )
    except InvalidInput as error:
        return visit.page("token_new.html", status=422, **_form_facts(visit, named, form, error))
    answer = visit.page("token_shown.html", token=made.token, secret=made.secret, is_rotated=False)
    answer.headers["HX-Trigger"] = render.header_json({"fairlead:refresh": {}})
    return answer


@router.post("/tokens/{token_id}/revoke")
async def revoke(token_id: UUID, visit: Manager) -> Response:
    """Revoke a token."""
    async with visit.transaction() as tx:
        token = await access.revoke_token(tx, visit.principal, token_id)
    return visit.respond(f"Token {token.name} revoked. It stops working within five seconds.")


@router.post("/tokens/{token_id}/rotate")
async def rotate(token_id: UUID, visit: Manager) -> Response:
    """Replace a token's secret; without `overlap`, the form that asks for it. Only this response contains the new secret."""
    overlap = (await visit.form()).get("overlap")
    async with visit.transaction() as tx:
        if overlap not in dict(OVERLAPS):
            token = await token_rotation.find_rotatable(tx, visit.principal, token_id)
            return visit.page("token_rotate.html", token=token, overlaps=OVERLAPS)
        made = await token_rotation.rotate(tx, visit.principal, token_id, overlap_seconds=float(overlap or 0))
    answer = visit.page(
        "token_shown.html",
        token=made.token,
        secret=made.secret,
        overlap=dict(OVERLAPS)[overlap] if overlap != "0" else None,
        is_rotated=True,
    )
    answer.headers["HX-Trigger"] = render.header_json({"fairlead:refresh": {}})
    return answer


def _may_rotate(visit: Visit, token: Token) -> bool:
    """Whether the list offers the rotation of a token; the action decides."""
    return (
        token.state is TokenState.VALID
        and not token.is_personal
        and token.replaced_by is None
        and (visit.is_super or token.role is not Role.WORKER)
    )


async def _list_hosts(tx: Tx, visit: Visit) -> list[tuple[UUID, str]]:
    return [(one.id, one.name) for one in await hosts.list_hosts(tx, visit.principal, limit=MOST_HOSTS)]


def _form_facts(
    visit: Visit,
    named: list[tuple[UUID, str]],
    values: Mapping[str, str] = NEW_TOKEN,
    error: InvalidInput | None = None,
) -> dict[str, Any]:
    """The variables of the form for a new token."""
    offered = roles.list_token_roles(visit)
    return {
        "values": {**values, "role": values["role"] or offered[0]},
        "error": error,
        "roles": offered,
        "words": roles.DESCRIPTIONS,
        "lives": LIVES if visit.is_super else LIVES[:-1],
        "host_options": [("", "choose one"), *named],
    }


def _read_role(form: Mapping[str, str]) -> Role:
    role = roles.find_role(form["role"])
    if role is None:
        raise InvalidInput("Choose a role.", [Fault("role", "choose one")])
    return role


def _read_days(form: Mapping[str, str]) -> int | None:
    if form["days"] not in dict(LIVES):
        raise InvalidInput("Choose how long the token is valid.", [Fault("days", "choose one")])
    return int(form["days"]) if form["days"] else None


def read_words(text: str) -> list[str] | None:
    """The words of a field, between spaces, lines or commas; None if it is empty."""
    return text.replace(",", " ").split() or None


def _read_host(form: Mapping[str, str]) -> UUID | None:
    try:
        return UUID(form["host_id"]) if form["host_id"] else None
    except ValueError:
        raise InvalidInput("Choose a host from the list.", [Fault("host_id", "choose one")]) from None
