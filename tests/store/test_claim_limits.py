"""Limits and gates are part of the claim: never exceeded, fully used, in force at once."""

from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from fairlead.actions import tenants
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Released, RetryBudget, Succeeded, decide
from fairlead.store import jobs, queue
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT, TESTER
from tests.store import test_claim_fairness as fairness
from tests.thorough import mostly_thorough

AT_ONCE = RetryBudget(3, 0, 0, Backoff(base_seconds=0))
NAMES = {"greet": {"name": "Ada"}, "anything": {}}

# every limited scope, what it allows, and who is in it
SCOPES = """
    select 'tenant ' || t.slug as scope, t.max_running as most, t.id as tenant_id, null::uuid as definition_id,
        null::uuid as host_id
    from fairlead.tenants t where t.max_running is not null
    union all
    select 'definition ' || d.key, d.max_running, null, d.id, null
    from fairlead.job_definitions d where d.max_running is not null
    union all
    select d.key || ' of ' || t.slug, d.max_running_per_tenant, t.id, d.id, null
    from fairlead.job_definitions d, fairlead.tenants t where d.max_running_per_tenant is not null
    union all
    select 'host ' || h.name, h.max_running, null, null, h.id from fairlead.hosts h
"""
INSIDE = """
    (s.tenant_id is null or x.tenant_id = s.tenant_id) and (s.definition_id is null or x.definition_id = s.definition_id)
    and (s.host_id is null or x.host_id = s.host_id)
"""


async def take(tx: Tx, /, wanted: int = 1, **options: Any) -> list[Lease]:
    claim = await queue.claim(tx, worker="w1", wanted=wanted, lease_seconds=30, **options)
    return [claim.lease(job) for job in claim.jobs]


async def take_all(tx: Tx, batch: int, hosts: list[UUID] | None = None) -> list[Lease]:
    """Claim until nothing comes."""
    leases: list[Lease] = []
    for host in [None, *(hosts or [])]:
        while more := await take(tx, batch, host=host):
            leases += more
    return leases


async def succeed(tx: Tx, leases: list[Lease]) -> None:
    change = decide(AT_ONCE, Succeeded())
    assert len(await queue.finish(tx, [(lease, change) for lease in leases], actor="w")) == len(leases)


async def fill(tx: Tx, number: int, hosts: dict[str, list[UUID]] | None = None) -> None:
    """So many jobs for each tenant and definition, and as many for each host."""
    for tenant in (TENANT, OTHER):
        for definition, payload in NAMES.items():
            for host in [None, *(hosts or {}).get(tenant, [])]:
                for _ in range(number):
                    job_id = await given.queued_job(tx, tenant=tenant, definition=definition, payload=payload)
                    if host is not None:
                        await given.bind_to_host(tx, job_id, host)


async def limit(tx: Tx, limits: dict[str, int | None]) -> None:
    """Set limits named `tenant acme`, `definition greet` or `each greet` (its tenants each)."""
    for name, most in limits.items():
        scope, key = name.split()
        if scope == "tenant":
            await tx.run("update fairlead.tenants set max_running = %s where slug = %s", [most, key])
        else:
            column = "max_running" if scope == "definition" else "max_running_per_tenant"
            await tx.run(f"update fairlead.job_definitions set {column} = %s where key = %s", [most, key])


async def levels(tx: Tx) -> dict[str, tuple[int, int]]:
    """How many run in each limited scope, and how many may."""
    rows = await tx.values(
        f"select s.scope, (select count(*) from fairlead.leases x where {INSIDE}), s.most from ({SCOPES}) s"
    )
    return {scope: (running, most) for scope, running, most in rows}


async def could_run(tx: Tx) -> int:
    """Ready jobs that no full scope holds back."""
    [(number,)] = await tx.values(
        f"""
        select count(*) from fairlead.ready r where not exists (
            select from ({SCOPES}) s
            where (select count(*) from fairlead.leases x where {INSIDE}) >= s.most
                and exists (select from (select r.tenant_id, r.definition_id, r.host_id) x where {INSIDE}))
        """
    )
    return int(number)


COMBINATIONS: list[dict[str, int | None]] = [
    {f"tenant {TENANT}": 3},
    {"definition greet": 3},
    {"each greet": 3},
    {f"tenant {TENANT}": 1, f"tenant {OTHER}": 3},
    {f"tenant {TENANT}": 3, "definition greet": 1},
    {f"tenant {TENANT}": 4, "definition greet": 3, "each greet": 2},
    {"definition greet": 10, "each greet": 3, "definition anything": 3, "each anything": 1},
    {
        f"tenant {TENANT}": 10,
        f"tenant {OTHER}": 3,
        "definition greet": 3,
        "each greet": 1,
        "each anything": 1,
    },
]


async def test_large_limits_of_several_tenants_stay_apart(tx: Tx) -> None:
    """The first claim makes the slots of each tenant, the second takes some, and the third needs them all."""
    await tenants.add(tx, TESTER, slug="third")
    await limit(tx, {"each greet": 64})
    for _ in range(3):
        for tenant in (TENANT, OTHER, "third"):
            await given.queued_job(tx, tenant=tenant)
        assert len(await take_all(tx, 10)) == 3


@pytest.mark.parametrize("batch", mostly_thorough([4, 1, 100]))
@pytest.mark.parametrize("limits", COMBINATIONS)
async def test_limits_are_never_exceeded_and_fully_used(
    tx: Tx, limits: dict[str, int | None], batch: int
) -> None:
    await limit(tx, limits)
    hosts = [await given.host(tx, f"h{most}", max_running=most) for most in (1, 3)]
    await fill(tx, 6, {TENANT: hosts})

    running: list[Lease] = []
    for _ in range(3):
        running += await take_all(tx, batch, hosts)
        assert all(number <= most for number, most in (await levels(tx)).values())
        assert await could_run(tx) == 0
        await succeed(tx, running[::2])
        running = running[1::2]
    assert await jobs.list_inconsistencies(tx) == []


async def test_changing_a_limit_takes_effect_at_once(tx: Tx) -> None:
    name = f"tenant {TENANT}"
    await limit(tx, {name: 2})
    await fill(tx, 10)
    held = await take_all(tx, 7)
    assert (await levels(tx))[name] == (2, 2)
    for most in (5, 1, None):
        await limit(tx, {name: most})
        held += await take_all(tx, 7)
        if most == 5:
            assert (await levels(tx))[name] == (5, 5)
        if most == 1:
            assert (await levels(tx))[name] == (5, 1)
    assert await given.count(tx, "ready") == 0
    assert await given.count(tx, "leases") == 40


async def test_a_scope_that_another_claim_holds_is_left_alone_and_nobody_waits(db: Database) -> None:
    async with db.transaction() as tx:
        await fill(tx, 5)
        await limit(tx, {f"tenant {TENANT}": 2})
    async with db.transaction() as one, db.transaction() as two:
        assert {*await take(one, 3)}
        tenant = await given.tenant_id(one)
        taken = await take_all(two, 50)
        rows = await two.values(
            "select distinct tenant_id from fairlead.leases where job_id = any(%s)",
            [[lease.job_id for lease in taken]],
        )
        assert taken
        assert (tenant,) not in rows
        await given.queued_job(two)  # an enqueue is not in anybody's way
    async with db.transaction() as tx:
        await take_all(tx, 50)
        assert (await levels(tx))[f"tenant {TENANT}"] == (2, 2)
        assert await could_run(tx) == 0


SCOPES_HELD: dict[str, tuple[dict[str, int | None], str]] = {
    "tenant": ({f"tenant {TENANT}": 5}, "tenant"),
    "definition": ({"definition anything": 5}, "definition"),
    "definition and tenant": ({"each anything": 5}, "definition_tenant"),
}


@pytest.mark.parametrize("scope", SCOPES_HELD)
async def test_a_limit_that_another_claim_holds_does_not_hide_other_tenants_jobs(
    db: Database, scope: str
) -> None:
    limits, held = SCOPES_HELD[scope]
    async with db.transaction() as tx:
        await limit(tx, limits)
        await given.queued_job(tx, definition="anything", payload={})
        await succeed(tx, await take(tx))  # the limit has a row now
        await given.queued_job(tx, definition="anything", payload={})
        free = await given.queued_job(tx, tenant=OTHER)
    async with db.transaction() as one, db.transaction() as two:
        assert await one.values("select from fairlead.limit_locks where scope = %s for update", [held])
        for start in ((TENANT, 0), (OTHER, 0), (TENANT, 1), (OTHER, 1)):
            async with two.connection.transaction(force_rollback=True):
                cursor = queue.Cursor(await given.tenant_id(two, start[0]), start[1])
                assert [lease.job_id for lease in await take(two, 1, cursor=cursor)] == [free]


async def test_jobs_that_another_claim_is_taking_do_not_hide_other_tenants_jobs(db: Database) -> None:
    async with db.transaction() as tx:
        await given.queued_job(tx)
        await given.queued_job(tx, tenant=OTHER)
    async with db.transaction() as one, db.transaction() as two:
        [first], [second] = await take(one, 1), await take(two, 1)
        assert first.job_id != second.job_id


async def test_a_definitions_limit_that_another_claim_holds_is_asked_for_once(db: Database) -> None:
    """However many tenants have jobs of it."""
    async with db.transaction() as tx:
        await limit(tx, {"definition anything": 5})
        await given.queued_job(tx, definition="anything", payload={})
        await succeed(tx, await take(tx))
        for slug in [f"tenant-{n}" for n in range(20)]:
            await tenants.add(tx, TESTER, slug=slug)
            await given.queued_job(tx, tenant=slug, definition="anything", payload={})
    async with db.transaction() as one, db.transaction() as two:
        await one.values("select from fairlead.limit_locks for update")
        await two.run("set local track_functions = 'all'")
        assert await take(two) == []
        [(calls,)] = await two.values(
            "select pg_stat_get_xact_function_calls(oid) from pg_proc where proname = 'budgets'"
        )
        assert calls == 1


# A limit of 64 or more has slots, and claims far from it run side by side.
LARGE = 128
LARGE_LIMITS = [f"tenant {TENANT}", "definition greet", "each greet"]


async def many(tx: Tx, number: int) -> None:
    await fairness.fill(tx, TENANT, number)


async def make_slots(tx: Tx) -> None:
    """The first claim makes them."""
    await succeed(tx, await take(tx))


@pytest.mark.parametrize("name", LARGE_LIMITS)
async def test_claims_far_from_a_large_limit_do_not_hold_each_other_up(db: Database, name: str) -> None:
    async with db.transaction() as tx:
        await limit(tx, {name: LARGE})
        await many(tx, LARGE)
    await act(db, make_slots)
    async with db.transaction() as one, db.transaction() as two, db.transaction() as three:
        assert [len(await take(tx, 2)) for tx in (one, two, three)] == [2, 2, 2]


@pytest.mark.parametrize("name", LARGE_LIMITS)
async def test_a_large_limit_is_filled_to_the_last_job_and_never_exceeded(db: Database, name: str) -> None:
    async with db.transaction() as tx:
        await limit(tx, {name: LARGE})
        await many(tx, 2 * LARGE)
    await act(db, make_slots)
    taken = 0
    for batch in (1, 7, 50, 100, 100, 100, 100):
        async with db.transaction() as one, db.transaction() as two:
            taken += len(await take(one, batch)) + len(await take(two, batch))
    while more := len(await db.single(lambda tx: take(tx, 3))):
        taken += more
    assert taken == LARGE


async def test_all_slots_in_use_at_once_stay_within_a_limit_that_was_lowered(db: Database) -> None:
    """Those that claimed under the old limit may still be at it; none that claims under the new one may exceed it."""
    name = f"tenant {TENANT}"
    async with db.transaction() as tx:
        await limit(tx, {name: 10 * LARGE})
        await many(tx, 10 * LARGE)
    await act(db, make_slots)
    async with AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(db.transaction()) for _ in range(4)]
        held = sum([len(await take(tx, 30)) for tx in holders])
        assert held == 120
        await act(db, limit, {name: LARGE})
        assert await act(db, take, 50) == []
    assert len(await act(db, take_all, 50)) == LARGE - held


async def test_a_second_claim_of_a_transaction_counts_exactly(db: Database) -> None:
    """What a slot is worth bounds a transaction, not a claim."""
    name = f"tenant {TENANT}"
    async with db.transaction() as tx:
        await limit(tx, {name: LARGE})
        await many(tx, 2 * LARGE)
    await act(db, make_slots)
    async with db.transaction() as one, db.transaction() as two:
        assert len(await take(one, 2)) == 2
        assert len(await take(two, 2)) == 2
        assert await take(one, 2) == []  # the other has slots too: nothing is exact before it has ended
    assert len(await act(db, take_all, 2)) == LARGE - 4


GATES = {
    "system": ("system set online = false", "system set online = true"),
    "tenant": ("tenants set paused_at = now()", "tenants set paused_at = null"),
    "definition": ("job_definitions set paused_at = now()", "job_definitions set paused_at = null"),
    "host": ("hosts set paused_at = now()", "hosts set paused_at = null"),
}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("gate", GATES)
async def test_a_gate_closes_and_opens_at_once(tx: Tx, gate: str, bound: bool) -> None:  # noqa: FBT001
    host = await given.host(tx) if bound or gate == "host" else None
    job_id = await given.queued_job(tx)
    if host is not None:
        await given.bind_to_host(tx, job_id, host)
    shut, opened = GATES[gate]

    await tx.run(f"update fairlead.{shut}")
    assert await take(tx, 10, host=host) == []
    await tx.run(f"update fairlead.{opened}")
    assert len(await take(tx, 10, host=host)) == 1


async def test_a_hosts_jobs_go_to_that_host_alone(tx: Tx) -> None:
    host = await given.host(tx)
    mine = await given.host_job(tx, host)
    assert await take(tx, 10) == []
    assert await take(tx, 10, host=uuid4()) == []
    [lease] = await take(tx, 10, host=host)
    assert lease.job_id == mine
    assert await queue.finish(tx, [(lease, decide(AT_ONCE, Released()))], actor="w") == {
        mine: JobStatus.QUEUED
    }
    assert await take(tx, 10) == []
    assert len(await take(tx, 10, host=host)) == 1


async def test_what_a_host_may_not_run_does_not_hide_what_it_may(tx: Tx) -> None:
    host = await given.host(tx, max_running=3)
    for _ in range(130):
        await given.host_job(tx, host, definition="anything", payload={}, priority=1)
    wanted = await given.host_job(tx, host, priority=900)
    await tx.run("update fairlead.job_definitions set paused_at = now() where key = 'anything'")
    assert [lease.job_id for lease in await take(tx, 1, host=host)] == [wanted]


async def test_a_host_takes_its_jobs_by_priority_then_age(tx: Tx) -> None:
    host = await given.host(tx, max_running=10)
    made = []
    for n, (definition, priority) in enumerate(
        [("greet", 5), ("anything", 1), ("greet", 1), ("anything", 5)]
    ):
        made.append((priority, n, await given.host_job(tx, host, definition=definition, priority=priority)))
    taken = [(await take(tx, 1, host=host))[0].job_id for _ in made]
    assert taken == [job_id for *_, job_id in sorted(made)]


@pytest.mark.parametrize("pairs", ["one pair", "several pairs", "a host"])
async def test_a_claim_waits_for_no_job_that_another_transaction_holds(db: Database, pairs: str) -> None:
    async with db.transaction() as tx:
        held, free = [await given.queued_job(tx) for _ in range(2)]
        expected = {free}
        host = await given.host(tx, max_running=9) if pairs == "a host" else None
        if host is not None:
            for job_id in (held, free):
                await given.bind_to_host(tx, job_id, host)
        if pairs == "several pairs":
            expected.add(await given.queued_job(tx, tenant=OTHER))

    async def claim(tx: Tx) -> set[UUID]:
        await tx.run("set local lock_timeout = '1ms'")
        return {lease.job_id for lease in await take(tx, 10, host=host)}

    async with db.transaction() as holding:
        await holding.run("select from fairlead.ready where job_id = %s for update", [held])
        assert await db.transact(claim) == expected
