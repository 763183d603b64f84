"""How many jobs workers could start, within all limits."""

from typing import Any
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as some

from fairlead.model.queue_depth import PairDepth, QueueDepth, add_depths, measure_depth

ADA, BOB = uuid4(), uuid4()
MAIL, SCAN = uuid4(), uuid4()


def pair(tenant: UUID = ADA, definition: UUID = MAIL, **fields: Any) -> PairDepth:
    known = {"due": 0, "running": 0, "leased": fields.get("running", 0), "slots": 1, "is_open": True}
    limits = {"tenant_limit": None, "definition_limit": None, "pair_limit": None}
    return PairDepth(tenant_id=tenant, definition_id=definition, **(known | limits | fields))


def measure(*pairs: PairDepth, tenant: UUID | None = None, definition: UUID | None = None) -> QueueDepth:
    return measure_depth(None, tenant, definition, pairs)


def test_due_and_running_jobs_make_the_depth_and_take_slots() -> None:
    found = measure(pair(due=3, running=2), pair(BOB, SCAN, due=1, slots=4))

    assert (found.claimable, found.running, found.depth, found.slots) == (4, 2, 6, 9)


def test_a_gate_leaves_what_runs() -> None:
    found = measure(pair(due=3, running=2, is_open=False))

    assert (found.claimable, found.running) == (0, 2)


def test_another_tenant_is_not_counted_but_takes_the_room_of_the_definition() -> None:
    limited: dict[str, Any] = {"definition_limit": 5}

    found = measure(pair(due=9, **limited), pair(BOB, running=3, due=9, **limited), tenant=ADA)

    assert (found.claimable, found.running) == (2, 0)


def test_another_definition_is_not_counted_but_takes_the_room_of_the_tenant() -> None:
    limited: dict[str, Any] = {"tenant_limit": 5}

    found = measure(pair(due=9, **limited), pair(ADA, SCAN, running=4, **limited), definition=MAIL)

    assert (found.claimable, found.running) == (1, 0)


def test_jobs_on_hosts_take_room_but_no_worker() -> None:
    found = measure(pair(due=9, running=1, leased=3, pair_limit=4))

    assert (found.claimable, found.running) == (1, 1)


def test_cells_add_up() -> None:
    one, two = measure(pair(due=3)), measure(pair(running=2, slots=2))

    assert add_depths([one, two]) == measure(pair(due=3), pair(BOB, running=2, slots=2))
    assert add_depths([]).depth == 0


limit = some.none() | some.integers(0, 6)


@given(some.data())
def test_no_limit_is_exceeded_and_nothing_that_fits_is_left_out(data: some.DataObject) -> None:
    of_tenant = {one: data.draw(limit) for one in (ADA, BOB)}
    of_definition = {one: data.draw(limit) for one in (MAIL, SCAN)}
    pairs = [
        pair(
            tenant,
            definition,
            due=data.draw(some.integers(0, 9)),
            running=data.draw(some.integers(0, 3)),
            tenant_limit=of_tenant[tenant],
            definition_limit=of_definition[definition],
            pair_limit=data.draw(limit),
        )
        for tenant in of_tenant
        for definition in of_definition
    ]

    found = measure(*pairs)

    assert found.claimable <= sum(one.due for one in pairs)
    for scope, limits in (("tenant_id", of_tenant), ("definition_id", of_definition)):
        for key, most in limits.items():
            within = [one for one in pairs if getattr(one, scope) == key]
            if most is not None:
                alone = measure(*within)
                assert alone.claimable <= max(0, most - sum(one.leased for one in within))
    if all(most is None for most in (*of_tenant.values(), *of_definition.values())):
        fits = (
            min(one.due, 9 if one.pair_limit is None else max(0, one.pair_limit - one.leased))
            for one in pairs
        )
        assert found.claimable == sum(fits)
