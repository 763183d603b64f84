"""Gates: closed and opened for everything or for one part of it, and obeyed by the claim at once."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from fairlead import Fairlead, JobStatus
from fairlead.actions import gates, tenants
from fairlead.db.database import Database
from fairlead.db.listen import POLL, Listener
from fairlead.db.tx import Tx
from fairlead.errors import (
    DefinitionUnknown,
    FairleadError,
    Forbidden,
    HostUnknown,
    InvalidInput,
    TenantUnknown,
)
from fairlead.model.access import Principal, Role
from fairlead.model.gate import GateKind
from fairlead.store import audit, definitions, queue
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.tables import each_case
from tests.waiting import SECONDS

# Which gate stands before a job of acme, of definition greet, on its host.
EVERY_GATE: list[dict[str, Any]] = [{}, {"tenant": TENANT}, {"definition": "greet"}, {"host": "rack-1"}]


async def claimed(tx: Tx, host_id: UUID | None = None) -> list[UUID]:
    claim = await queue.claim(tx, worker="w", wanted=10, lease_seconds=30, host=host_id)
    return [job.job_id for job in claim.jobs]


@pytest.mark.parametrize("named", EVERY_GATE, ids=str)
async def test_a_closed_gate_stops_the_claim_and_an_open_one_does_not(tx: Tx, named: dict[str, Any]) -> None:
    at = await given.host(tx) if "host" in named else None
    job_id = await given.queued_job(tx)
    if at:
        await given.bind_to_host(tx, job_id, at)

    closed = await gates.pause(tx, TESTER, **named, note="maintenance")
    assert await claimed(tx, at) == []
    opened = await gates.resume(tx, TESTER, **named)
    assert await claimed(tx, at) == [job_id]

    assert (closed.changed, closed.paused_by, closed.note) == (True, "tester", "maintenance")
    assert closed.paused_at is not None
    assert (opened.changed, opened.paused_at, opened.paused_by, opened.note) == (True, None, None, None)
    assert closed.kind == (next(iter(named), "system"))


@pytest.mark.parametrize(
    ("named", "goes_on"), [({"tenant": TENANT}, {"tenant": OTHER}), ({"definition": "greet"}, {})], ids=str
)
async def test_a_gate_stops_only_what_is_behind_it(
    tx: Tx, named: dict[str, Any], goes_on: dict[str, Any]
) -> None:
    await given.queued_job(tx)
    free = await given.queued_job(tx, **{"definition": "anything", **goes_on})
    await gates.pause(tx, TESTER, **named)

    assert await claimed(tx) == [free]


async def test_a_host_that_is_paused_leaves_the_others_alone(tx: Tx) -> None:
    closed, free = await given.host(tx, name="closed"), await given.host(tx, name="free")
    for at in (closed, free):
        await given.bind_to_host(tx, await given.queued_job(tx), at)
    await gates.pause(tx, TESTER, host=closed)

    assert await claimed(tx, closed) == []
    assert len(await claimed(tx, free)) == 1


async def test_what_runs_goes_on_behind_a_closed_gate(tx: Tx) -> None:
    await given.queued_job(tx)
    claim = await queue.claim(tx, worker="w", wanted=1, lease_seconds=30)
    await gates.pause(tx, TESTER)

    lease = claim.lease(claim.jobs[0])
    assert await queue.heartbeat(tx, [lease], lease_seconds=30) == {lease: queue.HeartbeatResult()}


@pytest.mark.parametrize("named", EVERY_GATE, ids=str)
async def test_each_change_of_a_gate_is_kept_and_audited_and_what_is_none_leaves_no_trace(
    tx: Tx, named: dict[str, Any]
) -> None:
    await given.host(tx)
    before = await definitions.get_by_keys(tx, ["greet"])
    written = await given.count(tx, "audit_log")
    gate = await gates.resume(tx, TESTER, **named)  # was open
    assert (gate.changed, gate.paused_at) == (False, None)
    assert await given.count(tx, "audit_log") == written
    assert await definitions.get_by_keys(tx, ["greet"]) == before

    first = await gates.pause(tx, TESTER, **named, note="first")
    second = await gates.pause(tx, TESTER, **named, note="second")
    third = await gates.pause(tx, TESTER, **named)
    assert first.paused_at == second.paused_at == third.paused_at
    assert (second.changed, second.note) == (False, "second")
    assert third.note == "second"  # saying nothing is not taking it back
    await gates.resume(tx, TESTER, **named)
    again = await gates.pause(tx, TESTER, **named)  # has nothing of the last one
    assert first.paused_at is not None
    assert again.paused_at is not None
    assert (again.note, again.paused_at > first.paused_at) == (None, True)

    kind = first.kind
    resumed, *_, paused = (await audit.list_recent(tx, limit=5))[1:]
    assert (paused.action, resumed.action) == (f"{kind}_paused", f"{kind}_resumed")
    assert (paused.actor, paused.resource_type) == ("tester", kind)
    assert paused.resource_id == (None if first.id is None else str(first.id))
    assert (paused.details["note"], "note" in resumed.details) == ("first", False)
    owned = kind in (GateKind.TENANT, GateKind.HOST)
    assert paused.tenant_id == (await given.tenant_id(tx) if owned else None)


async def test_a_tenant_is_named_by_slug_or_id(tx: Tx) -> None:
    wanted = await given.tenant_id(tx)
    for name in (TENANT, wanted, str(wanted).upper()):
        gate = await gates.pause(tx, TESTER, tenant=name)
        assert (gate.id, gate.name) == (wanted, TENANT)


@each_case(
    ("named", "refusal"),
    [
        ({"tenant": "nobody"}, TenantUnknown),
        ({"tenant": ""}, TenantUnknown),  # an empty variable of a script is not the whole system
        ({"definition": "nothing"}, DefinitionUnknown),
        ({"definition": ""}, DefinitionUnknown),
        ({"host": "nowhere"}, HostUnknown),
        ({"host": UUID(int=7)}, HostUnknown),
        ({"tenant": TENANT, "definition": "greet"}, InvalidInput),
        ({"tenant": "x\x00"}, InvalidInput),
        ({"note": "x\x00"}, InvalidInput),
        ({"note": "x" * 1001}, InvalidInput),
    ],
)
@each_case("action", [gates.pause, gates.resume])
async def test_what_cannot_be_is_refused_and_nothing_is_done(
    tx: Tx, action: Any, named: dict[str, Any], refusal: type[FairleadError]
) -> None:
    job_id = await given.queued_job(tx)
    written = await given.count(tx, "audit_log")
    with pytest.raises(refusal):
        await action(tx, TESTER, **named)

    assert await given.count(tx, "audit_log") == written
    assert await claimed(tx) == [job_id]


async def test_a_tenant_admin_moves_the_gates_of_its_own_hosts_only(tx: Tx) -> None:
    own, foreign = await given.host(tx, name="shared"), await given.host(tx, tenant=OTHER, name="shared")
    await given.host(tx, tenant=OTHER, name="theirs")
    mine = await given.tenant_id(tx)
    admin = Principal("admin", Role.TENANT_ADMIN, mine)

    assert (await gates.pause(tx, admin, host="shared")).id == own
    for name in (foreign, "theirs"):  # as if it were not there
        with pytest.raises(HostUnknown):
            await gates.pause(tx, admin, host=name)
    for role in (Role.VIEWER, Role.OPERATOR):
        with pytest.raises(Forbidden):
            await gates.resume(tx, Principal("somebody", role, mine), host="shared")


async def test_a_name_that_several_hosts_have_must_be_an_id(tx: Tx) -> None:
    own, foreign = await given.host(tx), await given.host(tx, tenant=OTHER)
    with pytest.raises(InvalidInput, match=str(own)):
        await gates.pause(tx, TESTER, host="rack-1")

    assert (await gates.pause(tx, TESTER, host=foreign)).tenant_id == await given.tenant_id(tx, OTHER)


async def test_pausing_a_tenant_by_its_own_command_is_the_same_gate(tx: Tx) -> None:
    paused = await tenants.pause(tx, TESTER, TENANT, note="invoice overdue")
    gate = await gates.pause(tx, TESTER, tenant=TENANT)
    resumed = await tenants.pause(tx, TESTER, TENANT, paused=False)

    assert (paused.paused_at, paused.pause_note) == (gate.paused_at, "invoice overdue")
    assert resumed.paused_at is None


async def test_everybody_is_told_when_a_gate_moves_and_only_then(fl: Fairlead, database_url: str) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with Listener(database_url, "fairlead") as listener, asyncio.timeout(SECONDS):
        with listener.subscribe(told.put_nowait):
            assert await told.get() == POLL
            await fl.resume()  # was open
            await fl.pause(tenant=TENANT)
            assert await told.get() == "gate"
            await fl.resume(tenant=TENANT)
            assert await told.get() == "gate"
            await fl.enqueue("anything", tenant=TENANT)
            assert await told.get() == "ready"


async def test_a_pause_that_is_rolled_back_never_was(db: Database) -> None:
    async with db.transaction() as tx:
        await gates.pause(tx, TESTER)
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")
    async with db.transaction() as tx:
        assert (await gates.resume(tx, TESTER)).changed is False
        assert "system_paused" not in [entry.action for entry in await audit.list_recent(tx)]


async def test_an_enqueue_does_not_wait_for_a_pause_in_progress(fl: Fairlead) -> None:
    async with asyncio.timeout(SECONDS), fl.transaction() as tx:
        await gates.pause(tx, TESTER, tenant=TENANT)
        await gates.pause(tx, TESTER, definition="anything")
        job = await fl.enqueue("anything", tenant=TENANT, dedupe_key="one")

    assert (await job.read()).status is JobStatus.QUEUED
