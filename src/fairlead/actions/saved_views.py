"""Save, list, rename and delete views of the console's lists: shared within a tenant, or a user's own."""

from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import Fault, Forbidden, InvalidInput, NotFound
from fairlead.model.access import Permission, Principal
from fairlead.model.payload import find_storage_flaw
from fairlead.model.saved_view import LONGEST_NAME, LONGEST_QUERY, PAGES, PASSING, SavedView
from fairlead.store import audit, saved_views

# Of a tenant, shared or not.
MOST_VIEWS = 200


async def list_views(tx: Tx, principal: Principal, page: str) -> list[SavedView]:
    """The views of a page that are shared in the principal's tenant, and its own."""
    owner_id = _require_user(principal)
    _check_page(page)
    return await saved_views.list_visible(tx, tenant_id=principal.tenant_id, page=page, owner_id=owner_id)


async def save(
    tx: Tx, principal: Principal, *, page: str, name: str, query: str, is_shared: bool
) -> SavedView:
    """Save a page's filters under a name."""
    owner_id = _require_user(principal)
    if is_shared:
        principal.require(Permission.WRITE_JOBS, principal.tenant_id)
    _check_page(page)
    if await saved_views.count(tx, tenant_id=principal.tenant_id) >= MOST_VIEWS:
        raise InvalidInput(f"There are {MOST_VIEWS} saved views already. Delete some that are not used.")
    made = await saved_views.add(
        tx,
        tenant_id=principal.tenant_id,
        page=page,
        name=_check_name(name),
        query=_clean_query(query),
        is_shared=is_shared,
        owner=principal.actor,
        owner_id=owner_id,
    )
    if made is None:
        raise _name_taken(name)
    await _audit_shared(tx, principal, "VIEW_SAVED", made)
    return made


async def rename(tx: Tx, principal: Principal, view_id: UUID, name: str) -> SavedView:
    """Give a view another name."""
    view = await _get_changeable(tx, principal, view_id)
    try:
        await saved_views.rename(tx, view.id, name=_check_name(name))
    except UniqueViolation:
        raise _name_taken(name) from None
    await _audit_shared(tx, principal, "VIEW_RENAMED", view, {"new_name": name})
    return view


async def delete(tx: Tx, principal: Principal, view_id: UUID) -> SavedView:
    """Delete a view."""
    view = await _get_changeable(tx, principal, view_id)
    await saved_views.remove(tx, view.id)
    await _audit_shared(tx, principal, "VIEW_DELETED", view)
    return view


def may_change(principal: Principal, view: SavedView) -> bool:
    """Whether the principal may rename and delete a view: its own, or a shared one if it may change jobs."""
    if not view.is_shared:
        return view.owner_id == _find_user(principal)
    try:
        principal.require(Permission.WRITE_JOBS, view.tenant_id)
    except Forbidden:
        return False
    return True


async def _get_changeable(tx: Tx, principal: Principal, view_id: UUID) -> SavedView:
    owner_id = _require_user(principal)
    view = await saved_views.get(tx, view_id, tenant_id=principal.tenant_id, owner_id=owner_id)
    if view is None:
        raise NotFound("There is no such view. It may have been deleted.")
    if view.is_shared:
        principal.require(Permission.WRITE_JOBS, view.tenant_id)
    return view


def _require_user(principal: Principal) -> UUID:
    principal.require(Permission.READ_JOBS, principal.tenant_id)
    found = _find_user(principal)
    if found is None:
        raise Forbidden("Views belong to users who sign in.")
    return found


def _find_user(principal: Principal) -> UUID | None:
    return principal.user_id or principal.id


def _check_page(page: str) -> None:
    if page not in PAGES:
        raise InvalidInput(f"Views are of one of: {', '.join(PAGES)}.", [Fault("page", "unknown")])


def _check_name(name: str) -> str:
    name = " ".join(name.split())
    flaw = find_storage_flaw(name)
    if not name or len(name) > LONGEST_NAME or flaw:
        raise InvalidInput(
            f"Give the view a name of at most {LONGEST_NAME} characters.",
            [Fault("name", flaw or "not valid")],
        )
    return name


def _clean_query(query: str) -> str:
    """The filters of an address, without what belongs to one visit."""
    try:
        given = parse_qsl(query.removeprefix("?"), max_num_fields=100, errors="strict")
    except ValueError:
        raise InvalidInput(
            "The address of the view is not readable.", [Fault("query", "not valid")]
        ) from None
    text = urlencode([(name, value) for name, value in given if name not in PASSING])
    if len(text) > LONGEST_QUERY:
        raise InvalidInput(
            "The address of the view is too long.", [Fault("query", f"at most {LONGEST_QUERY}")]
        )
    return text


def _name_taken(name: str) -> InvalidInput:
    return InvalidInput(
        f"There is a view {name[:LONGEST_NAME]!r} already. Choose another name.", [Fault("name", "taken")]
    )


async def _audit_shared(
    tx: Tx, principal: Principal, action: str, view: SavedView, details: dict[str, str] | None = None
) -> None:
    """Write an entry for a shared view; a user's own views concern no others."""
    if view.is_shared:
        await audit.write(
            tx,
            actor=principal.actor,
            action=action,
            resource_type="view",
            resource_id=view.id,
            tenant_id=view.tenant_id,
            details={"name": view.name, "page": view.page, **(details or {})},
        )
