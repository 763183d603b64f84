"""Hosts and resources: which host a job is for, by every way in, and what keeps it from running there."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from fairlead import Fairlead, FairleadError, NewJob
from fairlead.actions import bulk_jobs, definitions, dispatch, hosts
from fairlead.db.tx import Tx
from fairlead.errors import (
    HostExists,
    HostInUse,
    HostRequired,
    HostUnknown,
    InvalidInput,
    PayloadInvalid,
    ResourceElsewhere,
    ResourceExists,
    ResourceUnknown,
)
from fairlead.model.access import Permission
from fairlead.model.command.reader import read_commands
from fairlead.model.command.spec import derive_command_schema
from fairlead.model.definition_presets import PRESETS
from fairlead.model.host import Host, Resource
from fairlead.store import audit, queue
from tests import given
from tests.acting import act
from tests.given import OTHER, TENANT, TESTER
from tests.waiting import until_somebody_waits

START = "SERVER_START"


async def host(tx: Tx, name: str = "rack-1", *, tenant: str = TENANT, **says: Any) -> Host:
    return await hosts.add(tx, TESTER, tenant_id=await given.tenant_id(tx, tenant), name=name, **says)


async def server(tx: Tx, at: Host, name: str = "lobby", kind: str = "server") -> Resource:
    return await hosts.add_resource(tx, TESTER, tenant_id=at.tenant_id, host_id=at.id, kind=kind, name=name)


@dataclass(frozen=True)
class Place:
    host: Host
    elsewhere: Host
    foreign: Host
    lobby: Resource
    foreign_lobby: Resource


@pytest.fixture
async def place(fl: Fairlead) -> Place:
    """Two hosts of a tenant and one of another's, with a server on the first and the last."""
    async with fl.transaction() as tx:
        for one in PRESETS["servers"]:
            await definitions.patch(tx, TESTER, str(one["key"]), one)
        first, second = await host(tx), await host(tx, "rack-2")
        foreign = await host(tx, tenant=OTHER)
        return Place(first, second, foreign, await server(tx, first), await server(tx, foreign, "theirs"))


async def target(fl: Fairlead, job_id: UUID) -> tuple[UUID | None, UUID | None]:
    """Where a job is for, as its record says; its place in the queue says the same."""
    job = await fl.read(job_id)
    assert (await given.place_of(fl, job_id))[1] == job.host_id
    return job.host_id, job.resource_id


# Every way in, and where the job goes


async def by_enqueue(fl: Fairlead, new: NewJob) -> UUID:
    return (await fl.submit(new)).id


async def by_bulk(fl: Fairlead, new: NewJob) -> UUID:
    plain = given.request(definition="anything", payload={})
    return (await fl.enqueue_many([plain, new, given.request()]))[1].id


async def by_joining(fl: Fairlead, new: NewJob) -> UUID:
    async with await psycopg.AsyncConnection.connect(fl.direct_url) as connection:
        return (await fl.submit(new, tx=connection)).id


WAYS = (by_enqueue, by_bulk, by_joining)


@pytest.mark.parametrize("way", WAYS)
async def test_a_job_is_for_the_host_that_it_names_or_that_its_resource_is_on(
    fl: Fairlead, place: Place, way: Any
) -> None:
    def new(definition: str = "anything", payload: Any = None, **where: Any) -> NewJob:
        return NewJob(definition=definition, tenant=TENANT, payload=payload or {}, **where)

    here, lobby = place.host.id, place.lobby.id
    by_id, by_name = {"serverInstanceId": str(lobby).upper()}, {"serverInstanceId": "lobby"}

    assert await target(fl, await way(fl, new())) == (None, None)
    assert await target(fl, await way(fl, new(host_id=here))) == (here, None)
    assert await target(fl, await way(fl, new(resource_id=lobby))) == (here, lobby)
    assert await target(fl, await way(fl, new(host_id=here, resource_id=lobby))) == (here, lobby)
    assert await target(fl, await way(fl, new(START, by_id))) == (here, lobby)
    assert await target(fl, await way(fl, new(START, by_name))) == (here, lobby)


async def created(fl: Fairlead, job_id: UUID) -> Any:
    """What the audit log says of a job's creation."""
    [entry] = await given.audit_entries(fl, "job_created", resource_id=str(job_id))
    return entry.details


@pytest.mark.parametrize("way", WAYS)
async def test_the_audit_log_says_which_resource_a_job_acts_on(fl: Fairlead, place: Place, way: Any) -> None:
    where = {"resource_id": str(place.lobby.id), "host_id": str(place.host.id)}
    named = NewJob(definition=START, tenant=TENANT, payload={"serverInstanceId": "lobby"})
    given_ = NewJob(definition="anything", tenant=TENANT, resource_id=place.lobby.id)

    assert await created(fl, await way(fl, named)) == {
        "definition_key": START,
        "serverInstanceId": "lobby",
        **where,
    }
    assert await created(fl, await way(fl, given_)) == {"definition_key": "anything", **where}


async def test_the_audit_log_does_not_say_a_resource_that_is_a_secret(fl: Fairlead, place: Place) -> None:
    async with fl.transaction() as tx:
        schema = {"properties": {"serverInstanceId": {"type": "string", "writeOnly": True}}}
        await definitions.patch(tx, TESTER, START, {"arg_schema": schema})
        # by its id: its name is too short for a secret
    job = await fl.enqueue(START, tenant=TENANT, payload={"serverInstanceId": str(place.lobby.id)})

    assert "serverInstanceId" not in await created(fl, job.id)


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_unknown_or_anothers_is_refused_and_nothing_is_enqueued(
    fl: Fairlead, place: Place, way: Any
) -> None:
    async with fl.transaction() as tx:
        await definitions.patch(tx, TESTER, "on-a-host", {"kind": "host"})
        await server(tx, place.elsewhere, "twice", "server")
        await server(tx, place.elsewhere, "twice", "volume")
    named = [{"serverInstanceId": one} for one in ("nobody", "theirs", "twice", str(place.foreign_lobby.id))]
    cases: list[tuple[type[FairleadError], str, Any, dict[str, Any]]] = [
        (HostUnknown, "anything", {}, {"host_id": uuid4()}),
        (HostUnknown, "anything", {}, {"host_id": place.foreign.id}),
        (ResourceUnknown, "anything", {}, {"resource_id": uuid4()}),
        (ResourceUnknown, "anything", {}, {"resource_id": place.foreign_lobby.id}),
        (ResourceElsewhere, "anything", {}, {"resource_id": place.lobby.id, "host_id": place.elsewhere.id}),
        (HostRequired, "on-a-host", {}, {}),
        *((ResourceUnknown, START, payload, {}) for payload in named),
    ]
    for refusal, definition, payload, where in cases:
        with pytest.raises(refusal):
            await way(fl, NewJob(definition=definition, tenant=TENANT, payload=payload, **where))

    assert await given.count(fl, "jobs") == 0


@pytest.mark.parametrize("way", WAYS)
async def test_an_unknown_resource_is_named_where_it_was_named(fl: Fairlead, place: Place, way: Any) -> None:
    by_payload = NewJob(definition=START, tenant=TENANT, payload={"serverInstanceId": "lobbby"})
    unknown = uuid4()
    by_id = NewJob(definition="anything", tenant=TENANT, payload={}, resource_id=unknown)

    for new, where, name in (
        (by_payload, "/serverInstanceId", "lobbby"),
        (by_id, "resource_id", str(unknown)),
    ):
        with pytest.raises(ResourceUnknown, match=name) as refused:
            await way(fl, new)
        assert refused.value.faults[0].path.endswith(where)


async def test_a_field_that_no_command_of_a_host_could_use_is_refused_at_the_enqueue(
    fl: Fairlead, place: Place
) -> None:
    for payload in ({"serverInstanceId": "lobby", "force": True}, {"serverInstanceId": "-lobby"}):
        with pytest.raises(PayloadInvalid):
            await fl.enqueue(START, payload=payload, tenant=TENANT)


def test_the_presets_of_hosts_have_the_schema_of_a_command() -> None:
    argv = ["/usr/bin/systemctl", "start", "{payload.serverInstanceId}"]
    [command] = read_commands({"commands": {START: {"argv": argv}}}).values()

    for preset in PRESETS["servers"]:
        bounded = {**derive_command_schema(command)["properties"]["serverInstanceId"], "maxLength": 200}
        assert preset["arg_schema"] == {
            **derive_command_schema(command),
            "properties": {"serverInstanceId": bounded},
        }


async def test_a_mixed_load_is_refused_by_the_place_in_the_whole_of_it(fl: Fairlead, place: Place) -> None:
    fine = NewJob(definition="anything", tenant=TENANT, payload={}, host_id=place.host.id)
    for bad in (
        given.request(payload={"n": 1}),
        given.request(definition=START, payload={"serverInstanceId": "?"}),
    ):
        with pytest.raises(FairleadError) as refused:
            await fl.enqueue_many([fine, given.request(), bad])
        assert refused.value.faults[0].path.startswith("[2]")


async def test_a_call_of_a_function_may_be_for_a_host(fl: Fairlead, place: Place) -> None:
    app = Fairlead(settings=fl.settings, actor="tester")

    @app.job(key="tidy")
    async def tidy() -> None:
        """Tidy up."""

    async with app:
        called = await tidy.options(host_id=place.host.id).enqueue(tenant=TENANT)
        made = await app.enqueue("tidy", tenant=TENANT, resource_id=place.lobby.id)

    assert await target(fl, called.id) == (place.host.id, None)
    assert await target(fl, made.id) == (place.host.id, place.lobby.id)


async def test_plain_sql_finds_the_host_by_the_payload_and_refuses_with_the_code(
    fl: Fairlead, place: Place
) -> None:
    with psycopg.connect(fl.direct_url) as connection:
        enqueue = "select job_id from fairlead.enqueue('acme', 'SERVER_START', %s::jsonb)"
        row = connection.execute(enqueue, ['{"serverInstanceId": "lobby"}']).fetchone()
        connection.commit()
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(enqueue, ['{"serverInstanceId": "theirs"}'])

    assert row is not None
    assert await target(fl, row[0]) == (place.host.id, place.lobby.id)
    assert (refused.value.sqlstate, refused.value.diag.message_detail) == ("FL001", "resource_unknown")


async def test_a_triggers_jobs_find_their_host_too(fl: Fairlead, place: Place) -> None:
    template = {"serverInstanceId": "{{event.server}}"}
    async with fl.transaction() as tx:
        await given.trigger(tx, definition_key=START, payload_template=template, dedupe_window_seconds=0)
        for name in ("lobby", "nobody"):
            await given.event(tx, data={"server": name})
        await dispatch.dispatch(tx, given.catalog(), limit=10)
        outcomes = await tx.values("select outcome::text, reason from fairlead.trigger_firings order by id")
        [job] = await given.all_jobs(tx)

    assert [outcome for outcome, _ in outcomes] == ["enqueued", "failed"]
    assert "resource" in outcomes[1][1]
    assert await target(fl, job.id) == (place.host.id, place.lobby.id)


async def test_a_job_that_is_due_later_keeps_its_host(fl: Fairlead, place: Place) -> None:
    soon = (await act(fl, Tx.values, "select clock_timestamp() + interval '1 hour'"))[0][0]
    job = await fl.enqueue("anything", tenant=TENANT, host_id=place.host.id, scheduled_for=soon)
    async with fl.transaction() as tx:
        await given.fall_due(tx)
        await queue.stage_due(tx, limit=10)

    assert await target(fl, job.id) == (place.host.id, None)


async def test_a_moved_resource_takes_new_jobs_with_it_and_leaves_the_old_ones(
    fl: Fairlead, place: Place
) -> None:
    old = await fl.enqueue("anything", tenant=TENANT, resource_id=place.lobby.id)
    await act(fl, hosts.change_resource, TESTER, place.lobby.id, host_id=place.elsewhere.id)
    new = await fl.enqueue("anything", tenant=TENANT, resource_id=place.lobby.id)

    assert await target(fl, old.id) == (place.host.id, place.lobby.id)
    assert await target(fl, new.id) == (place.elsewhere.id, place.lobby.id)


async def test_a_retry_goes_to_the_host_of_what_its_new_payload_names(fl: Fairlead, place: Place) -> None:
    arena = await act(fl, server, place.elsewhere, "arena")
    job = await fl.enqueue(START, tenant=TENANT, payload={"serverInstanceId": "lobby"})
    await fl.cancel(job.id)

    for unknown in ("nobody", "theirs"):
        with pytest.raises(ResourceUnknown):
            await fl.retry(job.id, payload={"serverInstanceId": unknown})
    await fl.retry(job.id, payload={"serverInstanceId": "arena"})

    assert await target(fl, job.id) == (place.elsewhere.id, arena.id)
    assert await claimed(fl, place.host) == []
    assert await claimed(fl, place.elsewhere) == [job.id]


async def test_a_retry_is_freed_from_a_host_that_was_removed_by_naming_another_resource(
    fl: Fairlead, place: Place
) -> None:
    await act(fl, server, place.elsewhere, "arena")
    job = await fl.enqueue(START, tenant=TENANT, payload={"serverInstanceId": "arena"})
    await fl.cancel(job.id)
    await _removed(fl, place.elsewhere)

    await fl.retry(job.id, payload={"serverInstanceId": "lobby"})

    assert await target(fl, job.id) == (place.host.id, place.lobby.id)


async def test_a_retry_stays_where_it_was_unless_its_payload_names_another_resource(
    fl: Fairlead, place: Place
) -> None:
    await act(fl, definitions.patch, TESTER, "sweep", {"resource_pointer": "/on/server"})
    made = [
        await fl.enqueue("sweep", tenant=TENANT, payload={"on": {"server": "lobby"}}),
        await fl.enqueue("sweep", tenant=TENANT, payload={}, resource_id=place.lobby.id),
    ]
    for job in made:
        await fl.cancel(job.id)
    await act(fl, hosts.change_resource, TESTER, place.lobby.id, host_id=place.elsewhere.id, name="hall")

    await fl.retry(made[0].id, payload={"on": {"server": "lobby"}, "deep": True})
    await fl.retry(made[1].id, payload={"deep": True})

    for job in made:
        assert await target(fl, job.id) == (place.host.id, place.lobby.id)


# Who runs it, and how many at once


async def claimed(fl: Fairlead, at: Host | None, wanted: int = 10) -> list[UUID]:
    async with fl.transaction() as tx:
        taken = await queue.claim(
            tx, worker="w", wanted=wanted, lease_seconds=30, host=None if at is None else at.id
        )
    return [job.job_id for job in taken.jobs]


async def test_a_hosts_limit_holds_when_many_claim_at_once(fl: Fairlead, place: Place) -> None:
    await act(fl, hosts.change, TESTER, place.host.id, {"max_running": 3})
    await fl.enqueue_many([given.request(host_id=place.host.id) for _ in range(10)])

    taken = await asyncio.gather(*(claimed(fl, place.host, 2) for _ in range(20)))
    taken += await asyncio.gather(*(claimed(fl, place.host, 2) for _ in range(3)))

    assert len([job for jobs in taken for job in jobs]) == 3


async def test_why_says_that_a_host_is_drained_until_it_is_resumed(fl: Fairlead, place: Place) -> None:
    job = await fl.enqueue("anything", tenant=TENANT, host_id=place.host.id)
    other = await fl.enqueue("anything", tenant=TENANT, host_id=place.elsewhere.id)
    async with fl.transaction() as tx:
        await given.see_hosts(tx)
        await hosts.change(tx, TESTER, place.host.id, {"draining": True})
    [drained] = (await fl.why(job.id)).reasons
    await act(fl, hosts.change, TESTER, place.host.id, {"draining": False})

    assert drained.code == "host_draining"
    assert "Host rack-1 is draining" in drained.message
    assert [one.code for one in (await fl.why(job.id)).reasons] == ["ready"]
    assert [one.code for one in (await fl.why(other.id)).reasons] == ["ready"]


# Registering and changing


async def test_a_host_is_not_removed_under_a_job_that_is_being_enqueued(fl: Fairlead, place: Place) -> None:
    async with fl.transaction() as first:
        await fl.enqueue("anything", tenant=TENANT, host_id=place.elsewhere.id, tx=first.connection)
        removing = asyncio.create_task(_removed(fl, place.elsewhere))
        await until_somebody_waits(first)
    with pytest.raises(HostInUse, match="1 wait for it, and 0 run on it"):
        await removing


async def test_a_job_is_not_enqueued_for_a_host_that_is_being_removed(fl: Fairlead, place: Place) -> None:
    async with fl.transaction() as first:
        await hosts.remove(first, TESTER, place.elsewhere.id)
        enqueuing = asyncio.create_task(fl.enqueue("anything", tenant=TENANT, host_id=place.elsewhere.id))
        await until_somebody_waits(first)
    with pytest.raises(HostUnknown):
        await enqueuing
    assert await given.count(fl, "jobs") == 0


async def test_a_host_is_not_removed_under_jobs_that_are_being_retried(fl: Fairlead, place: Place) -> None:
    job = await fl.enqueue("anything", tenant=TENANT, host_id=place.elsewhere.id)
    await fl.cancel(job.id)
    async with fl.transaction() as first:
        assert (await bulk_jobs.retry_chosen(first, TESTER, [job.id], told={})).count == 1
        removing = asyncio.create_task(_removed(fl, place.elsewhere))
        await until_somebody_waits(first)
    with pytest.raises(HostInUse, match="1 wait for it, and 0 run on it"):
        await removing


async def _removed(fl: Fairlead, gone: Host) -> None:
    await act(fl, hosts.remove, TESTER, gone.id)


async def test_names_are_taken_once_a_tenant_and_kind(tx: Tx) -> None:
    first, second = await host(tx), await host(tx, "rack-2")
    await host(tx, tenant=OTHER)
    await server(tx, first)
    await server(tx, first, "lobby", "volume")

    with pytest.raises(HostExists):
        await host(tx)
    with pytest.raises(ResourceExists):
        await server(tx, second)


async def test_a_name_that_is_taken_is_not_taken_by_a_change_either(fl: Fairlead, place: Place) -> None:
    with pytest.raises(HostExists):
        await act(fl, hosts.change, TESTER, place.elsewhere.id, {"name": place.host.name})
    with pytest.raises(ResourceExists):
        async with fl.transaction() as tx:
            arena = await server(tx, place.host, "arena")
            await hosts.change_resource(tx, TESTER, arena.id, name=place.lobby.name)


async def test_a_name_that_several_have_does_not_say_which(tx: Tx) -> None:
    mine, theirs = await host(tx), await host(tx, tenant=OTHER)

    assert (await hosts.find(tx, TESTER, str(mine.id).upper())).id == mine.id
    with pytest.raises(InvalidInput) as refused:
        await hosts.find(tx, TESTER, "rack-1")
    assert str(mine.id) in refused.value.message
    assert str(theirs.id) in refused.value.message
    for name in ("nobody", "\x00", "\ud800"):
        with pytest.raises(HostUnknown):
            await hosts.find(tx, TESTER, name, Permission.MANAGE_HOSTS)
        with pytest.raises(ResourceUnknown):
            await hosts.find_resource(tx, TESTER, name)


async def test_a_resource_does_not_move_to_another_tenants_host(tx: Tx) -> None:
    lobby, theirs = await server(tx, await host(tx)), await host(tx, tenant=OTHER)

    with pytest.raises(HostUnknown):
        await hosts.change_resource(tx, TESTER, lobby.id, host_id=theirs.id)


async def test_every_change_is_audited_and_no_secret_is(tx: Tx) -> None:
    made = await host(tx)
    lobby = await server(tx, made)
    await hosts.change(tx, TESTER, made.id, {"max_running": 2, "draining": True})
    await hosts.change(tx, TESTER, made.id, {"max_running": 2, "draining": True})
    await hosts.change_resource(tx, TESTER, lobby.id, name="foyer")
    code = await hosts.create_enrolment_code(tx, TESTER, made.id)
    enrolled = await hosts.enrol(tx, code.code)
    await hosts.revoke_agents(tx, TESTER, made.id)
    await hosts.remove(tx, TESTER, made.id)

    entries = [
        one
        for one in await audit.list_recent(tx, limit=20)
        if one.resource_id in (str(made.id), str(lobby.id))
    ]
    assert [one.action for one in reversed(entries)] == [
        "host_created",
        "resource_created",
        "host_changed",
        "resource_changed",
        "enrolment_code_created",
        "agent_enrolled",
        "agents_revoked",
        "host_removed",
    ]
    told = str(entries)
    assert code.code not in told
    assert enrolled.secret not in told
