"""The allow-list of a tenant: the networks from which its users and tokens may be used."""

from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from fairlead.actions import address_lists
from fairlead.errors import AddressListExcludesYou, InvalidInput
from fairlead.model.access import Permission
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.pages.tokens import read_words
from fairlead.server.console.tenant_choice import choose_tenant
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Manager = Annotated[Visit, Depends(RequiresVisit(Permission.MANAGE_ADDRESSES))]


@router.get("/addresses")
async def show(visit: Manager) -> Response:
    """The form with the networks of the tenant."""
    if visit.tenant_id is None:
        return await choose_tenant(visit, what="the allow-list", to="/addresses")
    async with visit.transaction() as tx:
        networks = await address_lists.get(tx, visit.principal, visit.tenant)
    return _render(visit, "\n".join(networks))


@router.post("/addresses")
async def change(visit: Manager) -> Response:
    """Set the allow-list. One that has not the visitor's own address is set only after a warning."""
    form = await visit.form()
    text = form.get("addresses", "")
    try:
        async with visit.transaction(as_system=True) as tx:
            changed = await address_lists.change(
                tx,
                visit.principal,
                visit.tenant,
                read_words(text),
                ip=visit.ip,
                force=form.get("force") == "true",
            )
    except (InvalidInput, AddressListExcludesYou) as error:
        return _render(visit, text, error=error)
    told = (
        "The allow-list is set."
        if changed.addresses
        else "The allow-list is removed: any address is allowed."
    )
    return visit.respond(told, to=visit.to("/addresses"))


def _render(
    visit: Visit, text: str, *, error: InvalidInput | AddressListExcludesYou | None = None
) -> Response:
    return visit.page(
        "addresses.html",
        status=200 if error is None else error.http_status,
        text=text,
        error=error,
        locks_out=isinstance(error, AddressListExcludesYou),
    )
