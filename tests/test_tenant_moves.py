"""Moves of tenants between cells: nothing is lost or doubled, whatever interrupts them."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest

from fairlead import Fairlead, Flow
from fairlead.actions import access, address_lists, audit, tenants, token_rotation, workflows
from fairlead.actions import cells as directory
from fairlead.actions import tenant_moves as actions
from fairlead.actions.dispatch import dispatch
from fairlead.actions.firing import fire_all
from fairlead.actions.schedule_firing import build_instant_shot, fire_due
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import (
    CellInvalid,
    CellUnknown,
    CopyDiffers,
    DatabaseUnreachable,
    MoveBlocked,
    MoveRefused,
    TenantMoving,
    TenantUnknown,
    WrongCell,
)
from fairlead.library.tenant_moves import (
    TenantMover,
    cancel_move,
    finish_moves,
    list_moves,
    move_tenant,
    run_move_finisher,
)
from fairlead.model.access import Permission, Role
from fairlead.model.cells import TenantLoad
from fairlead.model.job import JobStatus
from fairlead.model.outcome import Change
from fairlead.model.rebalance import CellTenants, plan_moves
from fairlead.model.tenant_move import CopyProgress, MoveStep, TenantMove
from fairlead.runtime.maintenance import release_left_steps
from fairlead.store import queue, tenant_copy
from fairlead.store import triggers as triggers_store
from tests import given
from tests.acting import act
from tests.cells import add_cell, create_cell, drop_cell
from tests.cli.test_commands import Shell
from tests.server.test_row_level_security import ROWS
from tests.server.world import PASSWORD
from tests.waiting import SECONDS

TENANT = given.TENANT
# `make moves` interrupts a move after each of its commits
EVERY = 1 if "MOVES_EVERY_STEP" in os.environ else 4


@pytest.fixture
async def fl(fl: Fairlead, server: str, migrated: str) -> AsyncIterator[Fairlead]:
    """A Fairlead whose tenants are in the home cell, with a second cell `b`."""
    url = create_cell(server, migrated)
    await add_cell(fl, "b", url)
    yield fl
    await given.no_inconsistencies((await fl.cells.member("b")).database)
    await fl.cells.close()
    drop_cell(server, url)


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves do not look for open transactions before they close the gate, as if these had begun a moment later."""

    async def look(*_: object) -> None: ...

    monkeypatch.setattr(TenantMover, "_wait_with_open_gate", look)


class Stopped(Exception):
    """A process that dies: nothing of it is cleaned up."""


async def get_id(fl: Fairlead) -> UUID:
    return await given.tenant_id(fl)


async def read_rows(fl: Fairlead, tenant_id: UUID) -> dict[str, list[str]]:
    """All rows of a tenant that a move copies, as texts."""
    async with fl.transaction() as tx:
        await tx.values(tenant_copy.sql.settings)
        tables = tenant_copy.sort_out(await tenant_copy.list_tables(tx), tenant_id, tenant_copy.INSTEAD)
        return {table.name: await read_table(tx, table) for table in tables}


async def read_table(tx: Tx, table: tenant_copy.TenantTable) -> list[str]:
    query = "select row(<columns>)::text from fairlead.<table> r where <where> order by 1"
    return [text for (text,) in await tx.values(table.write(query, values=True))]


async def fill(fl: Fairlead) -> UUID:
    """Give the tenant a row in every table that has rows of tenants."""
    async with fl.transaction() as tx:
        tenant_id, definition_id = await given.tenant_id(tx), await given.definition_id(tx)
        for table, statement in ROWS.items():
            if table not in {"tenant_cells", "tenant_moves"}:
                await tx.run(statement, {"t": tenant_id, "id": uuid4(), "d": definition_id})
        await given.end_leases(tx, in_seconds=3600)
        await tx.run(
            "insert into fairlead.handovers (job_id, attempt_no, token, engine, queue) "
            "select job_id, attempt_no, token, 'e', 'q' from fairlead.leases"
        )
        await tx.run(
            "insert into fairlead.source_messages (source, message_id, expires_at) "
            "select name, 'm', now() + interval '1 day' from fairlead.sources"
        )
    return tenant_id


async def add_work(fl: Fairlead) -> dict[str, UUID]:
    """Jobs in every state, a workflow run, a trigger, a waiting event."""
    async with fl.transaction() as tx:
        made = {
            "queued": await given.queued_job(tx, dedupe_key="k"),
            "succeeded": await given.ended_job(tx, "succeeded"),
            "dead_letter": await given.ended_job(tx, "dead_letter"),
        }
        await given.trigger(tx, cron_expr="0 0 1 1 *")
        await given.event(tx)
    return made


async def statuses(fl: Fairlead, made: dict[str, UUID]) -> dict[str, str]:
    return {name: (await fl.read(job_id)).status.value for name, job_id in made.items()}


async def count_rows(fl: Fairlead, tenant_id: UUID) -> int:
    """How many rows of the tenant this cell has, without its audit log, which stays."""
    rows = await read_rows(fl, tenant_id)
    return sum(len(texts) for name, texts in rows.items() if name not in tenant_copy.APPEND_ONLY)


async def placement(fl: Fairlead, tenant_id: UUID) -> tuple[str, str | None, int]:
    async with fl.transaction() as tx:
        [row] = await tx.values(
            "select placement, moved_to, epoch from fairlead.tenants where id = %s", [tenant_id]
        )
    return row[0], row[1], row[2]


async def test_all_rows_of_a_tenant_move_there_and_back(fl: Fairlead) -> None:
    tenant_id = await fill(fl)
    b = await fl.cells.member("b")
    for cell in (fl, b):  # both open what the tenant has sealed
        async with cell.transaction() as tx:
            await tx.run(
                "insert into fairlead.tenant_keys (id, wrapped, master_key) values (%s, '', 'x')", [uuid4()]
            )
    before = await read_rows(fl, tenant_id)
    assert [name for name, rows in before.items() if not rows] == []

    await move_tenant(fl, TENANT, target="b", drain_seconds=0)
    there = await read_rows(b, tenant_id)
    assert await count_rows(fl, tenant_id) == 0
    assert await placement(fl, tenant_id) == ("moved", "b", 1)
    assert await placement(b, tenant_id) == ("here", None, 1)

    await move_tenant(fl, TENANT, target="home", drain_seconds=0)
    back = await read_rows(fl, tenant_id)
    assert await count_rows(b, tenant_id) == 0
    assert await placement(fl, tenant_id) == ("here", None, 2)

    for name, rows in before.items():
        if name == "leases":  # with another end
            assert there[name] != rows
            continue
        moved = [text for text in back[name] if "tenant_moved" in text] if name == "audit_log" else []
        assert [text for text in there[name] if text not in moved] == rows, name
        assert [text for text in back[name] if text not in moved] == rows, name
    async with b.transaction() as tx, fl.transaction() as home:
        # clean for the checks at the end: these jobs were never whole
        for one in (tx, home):
            await tenant_copy.remove_all(one, tenant_id)


@pytest.mark.thorough
async def test_scopes_addresses_identities_and_rotations_move_with_their_tenant(fl: Fairlead) -> None:
    tenant_id, b = await get_id(fl), await fl.cells.member("b")
    async with fl.transaction() as tx:
        await address_lists.change(tx, given.TESTER, tenant_id, ["10.0.0.0/8", "2001:db8::/32"])
        old = await access.create_token(
            tx,
            given.TESTER,
            name="reports",
            role=Role.VIEWER,
            tenant_id=tenant_id,
            scopes=["jobs.read"],
            addresses=["10.1.0.0/16"],
        )
        new = await token_rotation.rotate(tx, given.TESTER, old.token.id)
        user = await access.add_user(
            tx,
            given.TESTER,
            email="ada@example.com",
            password=PASSWORD,
            role=Role.VIEWER,
            tenant_id=tenant_id,
        )
        await tx.run(
            "insert into fairlead.identities (user_id, tenant_id, issuer, subject, provider) values (%s, %s, 'i', 's', 'p')",
            [user.id, tenant_id],
        )

    for target, there in (("b", b), ("home", fl)):
        await move_tenant(fl, TENANT, target=target, drain_seconds=0)
        async with there.transaction() as tx:
            principals = [await access.find_token_principal(tx, one.secret) for one in (old, new)]
            identities = await tx.values(
                "select user_id, issuer, subject, provider from fairlead.identities where tenant_id = %s",
                [tenant_id],
            )
            replaced = await tx.values(
                "select id from fairlead.tokens where tenant_id = %s and replaced_by = %s",
                [tenant_id, new.token.id],
            )
        for found in principals:
            assert found is not None
            assert found[0].permissions == {Permission.READ_JOBS}
            assert [one.networks for one in found[0].address_lists] == [
                ("10.1.0.0/16",),
                ("10.0.0.0/8", "2001:db8::/32"),
            ]
        assert identities == [(user.id, "i", "s", "p")]
        assert replaced == [(old.token.id,)]


@pytest.mark.thorough
async def test_every_table_is_copied_or_named_with_a_reason(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        stored = await tenant_copy.list_tables(tx)
        tenant_copy.sort_out(stored, uuid4(), {})
        names = {one.name for one in stored}
        assert names >= set(tenant_copy.NOT_COPIED) | set(tenant_copy.FOUND_BY) | set(tenant_copy.UNFINISHED)
        await tx.run("create table fairlead.of_a_later_version (id uuid)")
        with pytest.raises(CellInvalid, match="of_a_later_version"):
            tenant_copy.sort_out(await tenant_copy.list_tables(tx), uuid4(), {})
        await tx.connection.execute("rollback")
        await tx.connection.execute("begin")


@pytest.mark.thorough
async def test_a_move_that_was_interrupted_anywhere_goes_on(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after its first commit, after its second, and so on; each time another one goes on."""
    made = await add_work(fl)
    tenant_id = await get_id(fl)
    commits, moves, cells = 1, 0, ["b", "home"]
    is_over = False
    while not is_over:
        target, is_over = cells[moves % 2], True
        with monkeypatch.context() as patch:
            patch.setattr(Database, "transact", die_after(commits))
            try:
                await move_tenant(fl, TENANT, target=target, drain_seconds=0)
            except Stopped:
                is_over = False
        await move_tenant(fl, TENANT, target=target, drain_seconds=0) if await is_left(fl, target) else None
        assert await statuses(fl, made) == {name: name for name in made}
        members = {name: await fl.cells.member(name) for name in cells}
        assert [await count_rows(members[name], tenant_id) > 0 for name in cells] == [
            name == target for name in cells
        ]
        for member in members.values():
            await given.no_inconsistencies(member.database)
        commits, moves = commits + EVERY, moves + 1
    assert commits > 12
    async with (await fl.cells.find(TENANT)).transaction() as tx:
        # one for each stay, and no other entry twice
        arrivals = len(await given.audit_entries(tx, "tenant_moved"))
        doubled = "select 1 from fairlead.audit_log a where tenant_id = %s group by a.* having count(*) > 1"
        assert await tx.values(doubled, [tenant_id]) == []
    assert arrivals == moves


async def die_in(fl: Fairlead, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Move the tenant to `b` by a process that dies in this step."""

    async def die(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(TenantMover, step, die)
        with pytest.raises(Stopped):
            await move_tenant(fl, TENANT, target="b")


def die_after(commits: int) -> Callable[..., Awaitable[object]]:
    """`Database.transact` of a process that dies after so many commits."""
    real, done = Database.transact, 0

    async def transact(
        database: Database, work: Callable[[Tx], Awaitable[object]], **options: bool
    ) -> object:
        nonlocal done
        answer = await real(database, work, **options)
        done += 1
        if done == commits:
            raise Stopped
        return answer

    return transact


async def is_left(fl: Fairlead, target: str) -> bool:
    """Whether the tenant is not yet where it should be, or its move has not ended."""
    return bool(await list_moves(fl)) or (await fl.cells.find(TENANT)) is not await fl.cells.member(target)


@pytest.mark.thorough
async def test_a_move_whose_process_died_is_finished_by_the_others(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await add_work(fl)

    await die_in(fl, monkeypatch, "_open")
    [left] = await list_moves(fl)
    assert left.step is MoveStep.OPEN
    async with run_move_finisher(fl):
        while await list_moves(fl):
            await asyncio.sleep(0.01)
    assert await statuses(fl, made) == {name: name for name in made}


@pytest.mark.thorough
async def test_two_processes_move_a_tenant_once(fl: Fairlead) -> None:
    made = await add_work(fl)
    await asyncio.gather(*(move_tenant(fl, TENANT, target="b") for _ in range(3)))
    assert await statuses(fl, made) == {name: name for name in made}
    assert await placement(await fl.cells.member("b"), await get_id(fl)) == ("here", None, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["_gate", "_copy", "_flip"])
async def test_a_move_can_be_taken_back_until_the_directory_says_otherwise(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    made = await add_work(fl)
    tenant_id = await get_id(fl)
    before = await read_rows(fl, tenant_id)

    await die_in(fl, monkeypatch, step)
    await cancel_move(fl, TENANT)
    assert await placement(fl, tenant_id) == ("here", None, 0)
    assert await read_rows(fl, tenant_id) == before
    assert await count_rows(await fl.cells.member("b"), tenant_id) == 0
    assert await list_moves(fl) == []
    await move_tenant(fl, TENANT, target="b")
    assert await statuses(fl, made) == {name: name for name in made}
    with pytest.raises(MoveRefused, match="not being moved"):
        await cancel_move(fl, TENANT)


@pytest.mark.thorough
async def test_a_move_past_the_flip_cannot_be_taken_back(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    await die_in(fl, monkeypatch, "_open")
    with pytest.raises(MoveRefused, match="already"):
        await cancel_move(fl, TENANT)
    b = await fl.cells.find(TENANT)
    assert b is await fl.cells.member("b")
    async with b.transaction() as tx:
        with pytest.raises(TenantMoving):  # neither read nor changed before it is open
            await tenants.find(tx, fl.principal, TENANT)
    assert await finish_moves(fl) == 1


@pytest.mark.thorough
async def test_a_pause_moves_with_its_tenant_and_a_move_leaves_none(fl: Fairlead) -> None:
    await fl.pause(tenant=TENANT, note="closed on Sundays")
    await move_tenant(fl, TENANT, target="b")
    gate = await fl.pause(tenant=TENANT)
    assert (gate.note, gate.paused_by) == ("closed on Sundays", "tester")
    await fl.resume(tenant=TENANT)
    await move_tenant(fl, TENANT, target="home")
    found = await act(fl, tenants.find, fl.principal, TENANT)
    assert found is not None
    assert found.paused_at is None


@pytest.mark.thorough
async def test_a_lease_moves_and_only_the_target_accepts_its_end(fl: Fairlead) -> None:
    lease = await given.claimed_job(fl)
    success = [(lease, Change(status=JobStatus.SUCCEEDED, attempt_status="succeeded"))]
    refused = []

    def tell(move: TenantMove, progress: CopyProgress | None) -> None:
        if move.step is MoveStep.COPY:
            refused.append(asyncio.create_task(fl.database.transact(end)))

    async def end(tx: Tx) -> object:
        return (
            await queue.heartbeat(tx, [lease], lease_seconds=30),
            await queue.finish(tx, success, actor="somebody"),
        )

    await move_tenant(fl, TENANT, target="b", drain_seconds=0, tell=tell)
    refused.append(asyncio.create_task(fl.database.transact(end)))
    assert {str(answer) for answer in await asyncio.gather(*refused)} == {"({}, {})"}
    b = await fl.cells.member("b")
    async with b.transaction() as tx:
        assert (await queue.heartbeat(tx, [lease], lease_seconds=30))[lease].renewed
        assert await queue.finish(tx, success, actor="somebody") == {lease.job_id: "succeeded"}
    assert (await fl.read(lease.job_id)).status is JobStatus.SUCCEEDED


@pytest.mark.thorough
async def test_jobs_that_end_in_time_do_not_move_as_running(fl: Fairlead) -> None:
    lease = await given.claimed_job(fl)
    success = [(lease, Change(status=JobStatus.SUCCEEDED, attempt_status="succeeded"))]
    moving = asyncio.create_task(move_tenant(fl, TENANT, target="b", drain_seconds=600))
    await until_leaving(fl)
    assert await act(fl, queue.finish, success, actor="somebody") == {lease.job_id: "succeeded"}
    await moving
    assert (await fl.read(lease.job_id)).status is JobStatus.SUCCEEDED


async def until_leaving(fl: Fairlead) -> None:
    async with asyncio.timeout(SECONDS):
        while (await placement(fl, await get_id(fl)))[0] != "leaving":
            await asyncio.sleep(0.01)


async def until_room_is_used_up(fl: Fairlead) -> None:
    """The quick way to enqueue is closed a moment after the gate."""
    async with asyncio.timeout(SECONDS):
        while await has_room(fl):
            await asyncio.sleep(0.01)


async def has_room(fl: Fairlead) -> bool:
    """Whether single enqueues of the tenant need not count its jobs."""
    async with fl.transaction() as tx:
        [[roomy]] = await tx.values(
            "select roomy_until > clock_timestamp() from fairlead.tenant_use where tenant_id = %s",
            [await get_id(fl)],
        )
    return bool(roomy)


@pytest.mark.thorough
@pytest.mark.usefixtures("_hasty")
async def test_a_joined_transaction_that_began_before_the_gate_is_waited_for(fl: Fairlead) -> None:
    # measures the room, so that the transaction does not lock what it has measured
    await fl.enqueue("greet", tenant=TENANT, payload={"name": "first"})
    async with await psycopg.AsyncConnection.connect(fl.database.url) as mine:
        early = await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"}, tx=mine)
        moving = asyncio.create_task(move_tenant(fl, TENANT, target="b", drain_seconds=0))
        await until_leaving(fl)
        with pytest.raises(TenantMoving):
            async with mine.transaction():
                await fl.enqueue("greet", tenant=TENANT, payload={"name": "late"}, tx=mine)
        assert not moving.done()
        await mine.commit()
        await moving
    assert (await fl.read(early.id)).status is JobStatus.QUEUED
    assert await given.count(await fl.cells.member("b"), "job_records") == 2


@pytest.mark.thorough
@pytest.mark.usefixtures("_hasty")
async def test_a_joined_transaction_with_a_snapshot_keeps_the_gate_open_until_it_ends(fl: Fairlead) -> None:
    async with await psycopg.AsyncConnection.connect(fl.database.url) as mine:
        await mine.execute("set transaction isolation level repeatable read")
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"}, tx=mine)
        moving = asyncio.create_task(move_tenant(fl, TENANT, target="b", drain_seconds=0))
        while not await list_moves(fl):
            await asyncio.sleep(0.01)
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Bob"}, tx=mine)
        assert not moving.done()
        await mine.commit()
        await moving
    assert await given.count(await fl.cells.member("b"), "job_records") == 2


@pytest.mark.thorough
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_a_transaction_with_an_old_snapshot_cannot_write_after_the_gate(
    fl: Fairlead, isolation: str
) -> None:
    async with await psycopg.AsyncConnection.connect(fl.database.url) as mine:
        await mine.execute(f"set transaction isolation level {isolation}".encode())
        await mine.execute("select now()")  # it has read nothing of Fairlead
        await move_tenant(fl, TENANT, target="b", drain_seconds=0)
        with pytest.raises((WrongCell, psycopg.errors.SerializationFailure)):
            await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"}, tx=mine)
        await mine.rollback()


@pytest.mark.thorough
@pytest.mark.usefixtures("_hasty")
async def test_a_transaction_that_stays_open_ends_the_move_and_is_named(fl: Fairlead) -> None:
    async with await psycopg.AsyncConnection.connect(fl.database.url) as mine:
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"}, tx=mine)
        with pytest.raises(MoveBlocked, match=str(mine.info.backend_pid)):
            await move_tenant(fl, TENANT, target="b", wait_seconds=0.3)
        assert await placement(fl, await get_id(fl)) == ("here", None, 0)
        assert await list_moves(fl) == []
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"}, tx=mine)
        await mine.commit()


@pytest.mark.thorough
async def test_the_gate_stays_open_while_a_transaction_would_block_the_move(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nightly backup costs the tenant no writes."""
    closed, close_gate = [], actions.close_gate

    async def close(tx: Tx, move: TenantMove) -> None:
        closed.append(move.slug)
        await close_gate(tx, move)

    monkeypatch.setattr(actions, "close_gate", close)
    async with await psycopg.AsyncConnection.connect(fl.database.url) as backup:
        await backup.execute("select from fairlead.job_records")
        with pytest.raises(MoveBlocked, match=str(backup.info.backend_pid)):
            await move_tenant(fl, TENANT, target="b", wait_seconds=0.3)
    assert closed == []
    await move_tenant(fl, TENANT, target="b")
    assert closed == [TENANT]


@pytest.mark.thorough
@pytest.mark.usefixtures("_hasty")
async def test_the_quick_way_to_enqueue_is_closed_too(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single enqueues read only tenant_use while there is room."""
    monkeypatch.setattr("fairlead.library.cells.MOVE_WAIT_SECONDS", 0.1)
    for _ in range(3):
        await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
    assert await has_room(fl)
    async with await psycopg.AsyncConnection.connect(fl.database.url) as mine:
        await mine.execute("select from fairlead.tenants")  # keeps the gate closed for a while
        moving = asyncio.create_task(move_tenant(fl, TENANT, target="b", drain_seconds=0))
        await until_leaving(fl)
        await until_room_is_used_up(fl)
        with pytest.raises(TenantMoving):
            await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
        await mine.rollback()
    await moving
    await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})


@pytest.mark.thorough
async def test_schedules_and_events_wait_for_the_new_cell(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        await given.due_trigger(tx)
        await given.trigger(tx, event_name=given.EVENT)
        await given.event(tx)
        await given.set_tenant(tx, TENANT, placement="leaving")
    async with fl.transaction() as tx:
        assert await fire_due(tx, given.catalog(), limit=10, grace_seconds=60) == 0
        assert await dispatch(tx, given.catalog(), limit=10) == 0
        await given.set_tenant(tx, TENANT, placement="here")
    await move_tenant(fl, TENANT, target="b")
    b = await fl.cells.member("b")
    async with b.transaction() as tx:
        assert await dispatch(tx, given.catalog(), limit=10) == 1
        assert await fire_due(tx, given.catalog(), limit=10, grace_seconds=60) == 1
        outcomes = await tx.values("select outcome from fairlead.trigger_firings order by 1")
    assert outcomes == [("enqueued",), ("enqueued",)]


@pytest.mark.thorough
async def test_jobs_of_a_workflow_step_that_are_still_to_be_made_are_made_in_the_new_cell(
    fl: Fairlead,
) -> None:
    flow = Flow("w")
    flow.step("each", "anything", {"text": "{{input.text}}"}, for_each=list(range(30)))
    await fl.run_inline(flow, tenant=TENANT, input={"text": "x" * 50_000})
    await given.set_tenant(fl, TENANT, placement="leaving")
    await release_left_steps(fl.database)
    await given.set_tenant(fl, TENANT, placement="here")
    assert await given.count(fl, "job_records") == 0
    await move_tenant(fl, TENANT, target="b")
    b = await fl.cells.member("b")
    await release_left_steps(b.database)

    assert (await given.count(fl, "job_records"), await given.count(b, "job_records")) == (0, 30)


@pytest.mark.thorough
async def test_a_firing_that_meets_the_gate_is_not_recorded_as_failed(fl: Fairlead) -> None:
    await given.due_trigger(fl)
    async with fl.transaction() as tx:
        found = await triggers_store.lock_due(tx, limit=1)
        await given.set_tenant(fl, TENANT, placement="leaving")
        with pytest.raises(TenantMoving):
            await fire_all(tx, given.catalog(), [build_instant_shot(found[0], datetime.now(UTC))])
    assert await given.count(fl, "trigger_firings") == 0


@pytest.mark.thorough
async def test_only_possible_moves_begin(fl: Fairlead, server: str, migrated: str) -> None:
    await add_cell(fl, "old", create_cell(server, migrated))
    old = await fl.cells.member("old")
    await act(old, Tx.run, "alter table fairlead.hosts drop column labels")
    async with fl.transaction() as tx:
        url = fl.database.url.replace(
            str(psycopg.conninfo.conninfo_to_dict(fl.database.url)["dbname"]), "nowhere"
        )
        await directory.add(tx, fl.principal, name="away", cell_id=uuid4(), url=url, schema="fairlead")
    for tenant, target, refusal in (
        (TENANT, "nowhere", CellUnknown),
        (TENANT, "home", MoveRefused),
        (TENANT, "old", CellInvalid),
        (TENANT, "away", DatabaseUnreachable),
        ("global", "b", MoveRefused),
        ("nobody", "b", TenantUnknown),
    ):
        with pytest.raises(refusal):
            await move_tenant(fl, tenant, target=target)
    assert await list_moves(fl) == []
    assert await placement(fl, await get_id(fl)) == ("here", None, 0)


@pytest.mark.thorough
async def test_a_failed_copy_is_taken_back(fl: Fairlead, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await add_work(fl)
    with monkeypatch.context() as patch:
        # rows that change on their way
        patch.setitem(tenant_copy.INSTEAD, ("job_records", "priority"), "(random() * 1000000)::integer")
        with pytest.raises(CopyDiffers, match="job_records"):
            await move_tenant(fl, TENANT, target="b")
    assert await placement(fl, await get_id(fl)) == ("here", None, 0)
    assert await statuses(fl, made) == {name: name for name in made}
    assert await list_moves(fl) == []


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["source", "target"])
async def test_the_error_of_a_move_names_the_database_that_failed(
    fl: Fairlead, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    databases = {"source": fl.database, "target": (await fl.cells.member("b")).database}

    async def kill(source: Tx, target: Tx, *_: object) -> None:
        victim = {"source": source, "target": target}[lost]
        await victim.run("select pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(actions, "copy_rows", kill)
    with pytest.raises(DatabaseUnreachable) as failed:
        await move_tenant(fl, TENANT, target="b")
    for name, database in databases.items():
        assert (database.address in failed.value.message) == (name == lost)
    assert "it answers again: repeat the request" in failed.value.message
    assert "FAIRLEAD_POOL_SIZE" not in failed.value.message
    assert await placement(fl, await get_id(fl)) == ("here", None, 0)


@pytest.mark.thorough
async def test_a_definition_for_one_tenant_moves_with_it(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        job_id = await given.queued_job(tx)
        await tx.run(
            "update fairlead.job_definitions set only_tenants = array(select id from fairlead.tenants) where key = 'greet'"
        )
    await move_tenant(fl, TENANT, target="b")
    b = await fl.cells.member("b")
    async with b.transaction() as tx:
        [[only]] = await tx.values("select only_tenants from fairlead.job_definitions where key = 'greet'")
    assert only == [await get_id(fl)]
    assert (await fl.read(job_id)).definition_key == "greet"


@pytest.mark.thorough
async def test_a_run_of_a_shared_workflow_finds_the_same_workflow(fl: Fairlead) -> None:
    spec = {"steps": [{"name": "one", "definition": "greet", "payload": {"name": "Ada"}}]}
    b = await fl.cells.member("b")
    run_ids = []
    for key, there in (("same", True), ("other", False)):
        await act(fl, workflows.publish, fl.principal, "global", {"key": key, **spec})
        if there:
            async with b.transaction() as tx:
                await tx.run(
                    "insert into fairlead.job_definitions (id, key) values (fairlead.definition_id('greet'), 'greet')"
                )
                await workflows.publish(tx, b.principal, "global", {"key": key, **spec})
        run_ids.append((await fl.start(key, tenant=TENANT)).id)
    await move_tenant(fl, TENANT, target="b")
    async with b.transaction() as tx:
        found: dict[str, str | None] = dict(
            await tx.values(
                "select r.key, w.key from fairlead.workflow_runs r left join fairlead.workflows w on w.id = r.workflow_id"
            )
        )
    assert found == {"same": "same", "other": None}
    for run_id in run_ids:
        assert (await fl.read_run(run_id)).run.status.value == "running"


@pytest.mark.thorough
async def test_the_audit_log_of_all_tenants_has_an_entry_once(fl: Fairlead) -> None:
    await fl.enqueue("greet", tenant=TENANT, payload={"name": "Ada"})
    b = await fl.cells.member("b")
    for target in ("b", "home", "b"):
        await move_tenant(fl, TENANT, target=target)
        found = []
        for member in (fl, b):
            async with member.transaction() as tx:
                page = await audit.list_entries(tx, member.principal, audit.AuditFilter(), limit=100)
                found += [entry.action for entry in page.items if entry.tenant_id == await get_id(fl)]
        assert found.count("job_created") == 1


@pytest.mark.thorough
async def test_a_running_job_with_a_limit_for_all_cells_has_to_end_first(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        lease = await given.claimed_job(tx)
        await given.set_definition(tx, "greet", max_running=1)
    with pytest.raises(MoveBlocked, match="max_running"):
        await move_tenant(fl, TENANT, target="b", drain_seconds=0, wait_seconds=0.2)
    assert (await act(fl, queue.heartbeat, [lease], lease_seconds=30))[lease].renewed


def load(slug: str, seconds: float) -> TenantLoad:
    return TenantLoad(tenant_id=uuid4(), slug=slug, weight=1, run_ms=int(seconds * 1000), runs=1)


@pytest.mark.thorough
def test_rebalance_moves_the_tenant_that_evens_out_the_cells() -> None:
    cells = {
        "a": CellTenants([load("large", 900), load("middle", 500), load("small", 10)]),
        "b": CellTenants([load("other", 400)]),
    }
    assert [(one.tenant, one.source, one.target) for one in plan_moves(cells)] == [("middle", "a", "b")]
    assert plan_moves({"a": CellTenants([load("one", 100)]), "b": CellTenants([load("two", 95)])}) == []


@pytest.mark.thorough
def test_rebalance_empties_a_cell_and_gives_a_draining_one_nothing() -> None:
    cells = {
        "a": CellTenants([load("one", 3), load("two", 2)]),
        "b": CellTenants([], is_draining=True),
        "c": CellTenants([]),
    }
    assert {(one.tenant, one.target) for one in plan_moves(cells, empty="a")} == {("one", "c"), ("two", "c")}
    draining = {"a": CellTenants([load("one", 3)], is_draining=True), "c": CellTenants([])}
    assert [(one.tenant, one.target) for one in plan_moves(draining)] == [("one", "c")]
    assert plan_moves({"a": CellTenants([load("one", 3)], is_draining=True)}) == []


@pytest.mark.thorough
async def test_the_commands_move_list_and_rebalance(fl: Fairlead) -> None:
    shell = Shell(fl.database.url)

    async def fairlead(*argv: str) -> str:
        return (await asyncio.to_thread(shell, *argv)).output

    assert "lives in the cell b" in await fairlead("tenants", "move", TENANT, "--to", "b")
    assert "already" in await fairlead("tenants", "move", TENANT, "--to", "b")
    assert "not being moved" in await fairlead("tenants", "move", TENANT, "--cancel")
    assert "--to" in await fairlead("tenants", "move", TENANT)
    assert await fairlead("cells", "moves", "--json") == "[]\n"
    planned = await fairlead("cells", "rebalance", "--empty", "b", "--dry-run")
    assert TENANT in planned
    assert "to be empty" in planned
    assert "lives in the cell home" in await fairlead("cells", "rebalance", "--empty", "b")
    assert await placement(fl, await get_id(fl)) == ("here", None, 2)


@pytest.mark.thorough
async def test_rebalance_goes_on_after_a_tenant_that_cannot_be_moved(fl: Fairlead) -> None:
    async with fl.transaction() as tx:
        await given.claimed_job(tx)
        await given.set_definition(tx, "greet", max_running=1)
    argv = ("cells", "rebalance", "--empty", "home", "--drain-seconds", "0", "--wait-seconds", "0.2")
    result = await asyncio.to_thread(Shell(fl.database.url), *argv)
    assert result.exit_code == 1
    assert f"{given.OTHER} lives in the cell b" in result.output
    assert f"1 of 2 tenants were not moved: {TENANT}" in " ".join(result.output.split())
    assert [await placement(fl, await given.tenant_id(fl, name)) for name in (TENANT, given.OTHER)] == [
        ("here", None, 0),
        ("moved", "b", 1),
    ]
