"""Saved views: a user's own, and those that a tenant shares."""

from uuid import uuid4

import pytest

from fairlead import Fairlead
from fairlead.actions import saved_views
from fairlead.db.tx import Tx
from fairlead.errors import Forbidden, InvalidInput, NotFound
from fairlead.model.access import Principal, Role
from fairlead.model.saved_view import SavedView
from tests import given


async def person(tx: Tx, role: Role, slug: str = given.TENANT) -> Principal:
    return Principal(f"user:{role}", role, await given.tenant_id(tx, slug), id=uuid4())


async def save(tx: Tx, who: Principal, name: str, *, shared: bool = False) -> SavedView:
    query = "status=failed&status=dead_letter&tenant=acme&cursor=x"
    return await saved_views.save(tx, who, page="/jobs", name=name, query=query, is_shared=shared)


async def names(tx: Tx, who: Principal) -> list[str]:
    return [one.name for one in await saved_views.list_views(tx, who, "/jobs")]


async def test_a_tenant_sees_its_shared_views_and_each_user_their_own(tx: Tx) -> None:
    operator, viewer = await person(tx, Role.OPERATOR), await person(tx, Role.VIEWER)
    shared = await save(tx, operator, "Team", shared=True)
    await save(tx, viewer, "Mine")

    assert shared.query == "status=failed&status=dead_letter"
    assert await names(tx, viewer) == ["Mine", "Team"]
    assert await names(tx, operator) == ["Team"]
    assert await names(tx, await person(tx, Role.OPERATOR, given.OTHER)) == []
    assert await saved_views.list_views(tx, viewer, "/errors") == []
    with pytest.raises(Forbidden):
        await save(tx, viewer, "Shared", shared=True)
    with pytest.raises(Forbidden):
        await saved_views.delete(tx, viewer, shared.id)
    assert not saved_views.may_change(viewer, shared)


async def test_views_are_renamed_and_deleted_and_shared_ones_audited(tx: Tx) -> None:
    operator = await person(tx, Role.OPERATOR)
    shared, own = await save(tx, operator, "Team", shared=True), await save(tx, operator, "Own")
    colleague = await person(tx, Role.OPERATOR)

    await saved_views.rename(tx, colleague, shared.id, "Our  team")
    await saved_views.rename(tx, operator, own.id, "Mine")
    assert await names(tx, operator) == ["Mine", "Our team"]
    with pytest.raises(NotFound):
        await saved_views.delete(tx, colleague, own.id)
    await saved_views.delete(tx, colleague, shared.id)
    await saved_views.delete(tx, operator, own.id)

    assert await names(tx, operator) == []
    entries = await given.audit_entries(tx, resource_type="view")
    assert [entry.action for entry in entries] == ["VIEW_SAVED", "VIEW_RENAMED", "VIEW_DELETED"]


async def test_a_name_is_used_once_and_the_number_is_bounded(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fl.transaction() as tx:
        operator = await person(tx, Role.OPERATOR)
        other = (await save(tx, operator, "B", shared=True)).id
        await save(tx, operator, "A", shared=True)
        with pytest.raises(InvalidInput, match="already"):
            await save(tx, operator, "a", shared=True)
        await save(tx, operator, "a")  # a user's own may have the same name
        for bad in ("", " ", "x" * 81, "a\x00"):
            with pytest.raises(InvalidInput):
                await save(tx, operator, bad)
        with pytest.raises(InvalidInput, match="one of"):
            await saved_views.list_views(tx, operator, "/tokens")
        monkeypatch.setattr(saved_views, "MOST_VIEWS", 3)
        with pytest.raises(InvalidInput, match="3 saved views already"):
            await save(tx, operator, "C")
    with pytest.raises(InvalidInput, match="already"):
        async with fl.transaction() as tx:
            await saved_views.rename(tx, operator, other, "A")
