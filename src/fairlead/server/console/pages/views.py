"""Saved views: a part of every list that has its filters in the address."""

from typing import Annotated
from urllib.parse import parse_qs
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from fairlead.actions import saved_views
from fairlead.errors import NotFound
from fairlead.model.access import Permission
from fairlead.model.saved_view import PASSING, SavedView
from fairlead.server.auth import GuardedRoute
from fairlead.server.console.forms import Form, uuid_of
from fairlead.server.console.visit import RequiresVisit, Visit

router = APIRouter(route_class=GuardedRoute)

Reader = Annotated[Visit, Depends(RequiresVisit(Permission.READ_JOBS))]


@router.get("/views")
async def list_views(request: Request, visit: Reader) -> Response:
    """The views of a page, as a part of that page."""
    given = request.query_params
    page, query = given.get("of", ""), given.get("query", "")
    async with visit.transaction() as tx:
        found = await saved_views.list_views(tx, visit.principal, page)
    return visit.page(
        "views_list.html",
        views=found,
        page=page,
        current=query,
        is_narrowed=bool(_filters(query, without="tz")),
        is_current=lambda view: _filters(view.query, without="tz") == _filters(query, without="tz"),
        link=lambda view: _address(visit, view),
        may_change=lambda view: saved_views.may_change(visit.principal, view),
    )


@router.post("/views/save")
async def save(visit: Reader) -> Response:
    """Save a view."""
    form = Form(await visit.form())
    async with visit.transaction() as tx:
        view = await saved_views.save(
            tx,
            visit.principal,
            page=form.text("of"),
            name=form.text("name"),
            query=form.text("query"),
            is_shared=form.is_ticked("shared"),
        )
    return visit.respond("View saved.", to=_address(visit, view))


@router.post("/views/rename")
async def rename(visit: Reader) -> Response:
    """Give a view another name."""
    form = Form(await visit.form())
    async with visit.transaction() as tx:
        view = await saved_views.rename(tx, visit.principal, _read_id(form), form.text("name"))
    return visit.respond("View renamed.", to=_address(visit, view))


@router.post("/views/delete")
async def delete(visit: Reader) -> Response:
    """Delete a view."""
    form = Form(await visit.form())
    async with visit.transaction() as tx:
        view = await saved_views.delete(tx, visit.principal, _read_id(form))
    return visit.respond("View deleted.", to=_address(visit, view))


def _read_id(form: Form) -> UUID:
    found = uuid_of(form.text("id"))
    if found is None:
        raise NotFound("There is no such view. It may have been deleted.")
    return found


def _filters(query: str, *, without: str = "") -> dict[str, list[str]]:
    return {name: values for name, values in parse_qs(query).items() if name not in {*PASSING, without}}


def _address(visit: Visit, view: SavedView) -> str:
    return visit.to(view.page, **_filters(view.query))
