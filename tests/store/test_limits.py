"""The list of limits: what is left of each, and what it holds back; every number is bounded."""

import json
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import definitions, limits
from fairlead.actions import tenants as tenant_actions
from fairlead.db.tx import Tx
from fairlead.model.access import Principal, Role
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.limits import LimitScope, LimitUse, mask_value
from fairlead.store import limits as stored
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.store.test_limit_upkeep import hold
from tests.tables import each_case

SLOW = Rate(1, per_seconds=3600)
KEY: dict[str, Any] = {"pointer": "/name", "max_running": 1}


async def read(tx: Tx, principal: Principal = TESTER, **options: Any) -> dict[LimitScope, LimitUse]:
    return {one.scope: one for one in await limits.list_all(tx, principal, **options)}


async def own(tx: Tx, slug: str) -> Principal:
    """A viewer of a tenant."""
    return Principal("viewer", Role.VIEWER, await given.tenant_id(tx, slug))


async def close_all(tx: Tx) -> None:
    """Every kind of rate, each with one start an hour, and three jobs of a tenant."""
    await limits.set_rate(tx, TESTER, SLOW)
    await limits.set_rate(tx, TESTER, SLOW, tenant=TENANT)
    await limits.set_rate(tx, TESTER, SLOW, definition="greet")
    await limits.set_rate(tx, TESTER, SLOW, definition="greet", each_tenant=True)
    await hold(tx, "Ada")


async def test_without_limits_there_is_nothing(tx: Tx) -> None:
    assert await limits.list_all(tx, TESTER) == []


async def test_an_open_rate_holds_nothing_back(tx: Tx) -> None:
    await limits.set_rate(tx, TESTER, "10/h+5")
    await limits.set_rate(tx, TESTER, "10/h+5", definition="greet")
    await given.queued_job(tx)
    found = await read(tx)
    assert [(one.tokens, one.opens_at, one.held) for one in found.values()] == [(5, None, 0)] * 2


async def test_closed_rates_tell_when_they_open_and_what_they_hold_back(tx: Tx) -> None:
    await close_all(tx)
    found = await read(tx)
    assert list(found) == [
        LimitScope.SYSTEM,
        LimitScope.TENANT,
        LimitScope.DEFINITION,
        LimitScope.DEFINITION_TENANT,
    ]
    for scope in (LimitScope.SYSTEM, LimitScope.TENANT, LimitScope.DEFINITION):
        assert (found[scope].tokens, found[scope].held, found[scope].has_more) == (0, 2, False)
        assert found[scope].opens_at is not None
    each = found[LimitScope.DEFINITION_TENANT]
    assert (each.tokens, each.opens_at, each.held) == (None, None, 2)
    [part] = each.parts
    assert (part.tenant, part.held, part.opens_at is not None) == (TENANT, 2, True)
    [(first,)] = await tx.values(
        "select job_id from fairlead.ready order by priority, scheduled_for, job_id limit 1"
    )
    assert part.first_job == first


async def test_a_tenant_sees_its_own_part_only(tx: Tx) -> None:
    await close_all(tx)
    mine, others = await read(tx, await own(tx, TENANT)), await read(tx, await own(tx, OTHER))
    assert mine[LimitScope.TENANT].tokens == 0
    assert LimitScope.TENANT not in others
    for scope in (LimitScope.SYSTEM, LimitScope.DEFINITION):
        # shared: a tenant is not told how many starts others have left
        assert mine[scope].tokens is others[scope].tokens is None
        assert mine[scope].opens_at == others[scope].opens_at is not None
        assert (mine[scope].held, others[scope].held) == (2, 0)
    assert (mine[LimitScope.DEFINITION_TENANT].held, others[LimitScope.DEFINITION_TENANT].held) == (2, 0)
    assert others[LimitScope.DEFINITION_TENANT].parts == ()
    # a tenant cannot ask for another one
    assert await read(tx, await own(tx, TENANT), tenant_id=await given.tenant_id(tx, OTHER)) == mine


async def test_keys_are_named_by_what_they_hold_back(tx: Tx) -> None:
    await definitions.patch(tx, TESTER, "greet", {"by_key": KEY})
    await hold(tx, "few", jobs=2)
    await hold(tx, "many", jobs=4)
    found = (await read(tx))[LimitScope.KEY]
    assert (found.held, found.has_more, found.by_key) == (4, False, KeyLimit("/name", max_running=1))
    assert [(one.value, one.held, one.running) for one in found.parts] == [("many", 3, 1), ("few", 1, 1)]
    assert (await read(tx, await own(tx, OTHER)))[LimitScope.KEY].parts == ()
    assert len((await read(tx, await own(tx, TENANT)))[LimitScope.KEY].parts) == 2


async def test_a_key_with_a_rate_tells_when_it_opens(tx: Tx) -> None:
    await definitions.patch(
        tx, TESTER, "greet", {"by_key": {"pointer": "/name", "rate": {"limit": 1, "per_seconds": 60}}}
    )
    await hold(tx, "Ada")
    [part] = (await read(tx))[LimitScope.KEY].parts
    assert (part.held, part.opens_at is not None) == (2, True)


async def test_counts_and_parts_are_bounded(tx: Tx, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("MOST_HELD", 2), ("MOST_PARTS", 1), ("LOOK_KEYS", 2)):
        monkeypatch.setattr(stored, name, most)
    monkeypatch.setattr("fairlead.model.limits.MOST_HELD", 2)
    await definitions.patch(tx, TESTER, "greet", {"by_key": KEY})
    await hold(tx, "a", "b", "c", jobs=5)
    await limits.set_rate(tx, TESTER, SLOW)
    for _ in range(5):
        await given.queued_job(tx, definition="anything")
    await tx.run("update fairlead.system set rate = rate")  # nothing
    await hold(tx)
    found = await read(tx)
    assert (found[LimitScope.KEY].held, found[LimitScope.KEY].has_more) == (2, True)
    [part] = found[LimitScope.KEY].parts
    assert (part.held, part.has_more) == (2, True)
    assert (found[LimitScope.SYSTEM].held, found[LimitScope.SYSTEM].has_more) == (2, True)


async def test_pages_follow_each_other(tx: Tx) -> None:
    await close_all(tx)
    seen, after = [], ""
    while True:
        page = await limits.list_page(tx, TESTER, after=after, limit=1)
        seen += [one.scope for one in page]
        if page.last is None:
            break
        after = page.last.place
    assert seen == list(await read(tx))


async def test_one_definition_alone(tx: Tx) -> None:
    await close_all(tx)
    [(greet,)] = await tx.values("select id from fairlead.job_definitions where key = 'greet'")
    assert list(await read(tx, definition_id=greet)) == [LimitScope.DEFINITION, LimitScope.DEFINITION_TENANT]


async def test_definitions_of_other_tenants_are_not_listed(tx: Tx) -> None:
    await close_all(tx)
    await definitions.set_tenants(tx, TESTER, "greet", [TENANT])
    assert LimitScope.DEFINITION not in await read(tx, await own(tx, OTHER))
    assert LimitScope.DEFINITION in await read(tx, await own(tx, TENANT))


async def test_changes_are_audited_once(tx: Tx) -> None:
    assert await limits.set_rate(tx, TESTER, "100/min+20") == Rate(100, 60, 20)
    await limits.set_rate(tx, TESTER, "100/min+20")
    assert await limits.get_system_rate(tx, TESTER) == Rate(100, 60, 20)
    await limits.set_rate(tx, TESTER, None)
    assert await limits.get_system_rate(tx, TESTER) is None
    entries = await given.audit_entries(tx, "system_changed")
    rate = {"limit": 100, "per_seconds": 60, "burst": 20, "cost": None}
    assert [(one.actor, one.details["rate"]) for one in entries] == [("tester", rate), ("tester", None)]


async def test_a_definition_keeps_what_is_not_changed(tx: Tx) -> None:
    await limits.set_rate(tx, TESTER, SLOW, definition="greet")
    # as an application's code that declares no rate
    await definitions.patch(tx, TESTER, "greet", {"timeout_seconds": 7})
    assert (await definitions.get_by_keys(tx, TESTER, ["greet"]))["greet"].rate == SLOW
    await tenant_actions.change(tx, TESTER, TENANT, {"weight": 3})
    await limits.set_rate(tx, TESTER, SLOW, tenant=TENANT)
    changed = await tenant_actions.change(tx, TESTER, TENANT, {"weight": 4})
    assert changed.rate == SLOW


@each_case(
    ("value", "pointer", "paths", "shown"),
    [
        ("acme", "/customer", (), "acme"),
        (7, "/customer", (), "7"),
        (True, "/customer", (), "true"),
        ({"id": 1}, "/customer", (), None),
        (None, "/customer", (), None),
        ("acme", "/customer", ("/customer",), None),
        ("acme", "/customer", ("/other",), "acme"),
        ("acme", "/a/b", ("/a",), None),
        ("acme", "/a/b", ("/**/b",), None),
        ("acme", "/a/0/b", (), "acme"),
        ("acme", "/a/0/b", ("/a/*/b",), None),
        ("acme", "/a~1b", ("/a~1b",), None),
        ("acme", "/a~1b", (), "acme"),
    ],
)
def test_values_that_are_secret_are_not_shown(
    value: Any, pointer: str, paths: tuple[str, ...], shown: str | None
) -> None:
    assert mask_value(value, pointer, paths, ()) == shown


async def test_secret_keys_are_not_shown(tx: Tx) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "x-secret": True}}}
    await definitions.patch(tx, TESTER, "greet", {"by_key": KEY, "arg_schema": schema})
    await hold(tx, "hunter2hunter2")
    [part] = (await read(tx))[LimitScope.KEY].parts
    assert part.value is None
    assert "hunter2" not in json.dumps(str(part))
    assert isinstance(part.first_job, UUID)
