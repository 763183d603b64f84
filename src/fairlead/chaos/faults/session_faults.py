"""Faults of sessions in PostgreSQL: terminated backends, long transactions, and locks of other programs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairlead.chaos.faults.fault import FaultKind, FaultScene, NothingToHit
from fairlead.chaos.history import now
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.settings import Settings

LOOK_SECONDS = 0.005
LEADER_SECONDS = 5.0
LOCK_TIMEOUT_SECONDS = 3.0
ROW_LOCK_SECONDS = (1.0, 8.0)
SNAPSHOT_SECONDS = (5.0, 25.0)
TABLE_LOCK_SECONDS = (0.3, 1.5)
HOT_TABLES = ("ready", "leases", "later", "job_records", "job_attempts", "events_waiting", "job_workers")

BACKENDS = """
select pid from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
    and {}
order by pid
"""
# The scheduler that fires schedules now, and the watchdog that does a periodic duty now.
LEADERS = """
with scheduler as (select hashtextextended('fairlead.scheduler', 0) as key)
select l.pid from pg_locks l, scheduler s
where l.locktype = 'advisory' and l.granted
    and l.classid::bigint = (s.key >> 32) & 4294967295 and l.objid::bigint = s.key & 4294967295
union
select l.pid from pg_locks l where l.relation = 'fairlead.duties'::regclass and l.granted and l.mode = 'RowShareLock'
"""
TERMINATE = "select pg_terminate_backend(%s)"
ROW_LOCKS = {
    "ready": "select job_id from fairlead.ready order by job_id limit 50 for update skip locked",
    "limit_locks": "select 1 from fairlead.limit_locks for update skip locked",
    "job_records": "select id from fairlead.job_records where status in ('queued', 'running') "
    "order by id limit 50 for update skip locked",
}


async def terminate_backends(scene: FaultScene) -> None:
    """Terminate some sessions of Fairlead."""
    pids = await _list_pids(scene, BACKENDS.format("starts_with(application_name, 'fairlead')"), "sessions")
    await _terminate(scene, scene.chance.sample(pids, min(len(pids), scene.chance.randint(1, 5))))


async def terminate_listener(scene: FaultScene) -> None:
    """Terminate a session that waits for notifications."""
    pids = await _list_pids(
        scene, BACKENDS.format("application_name = 'fairlead listen'"), "listening sessions"
    )
    await _terminate(scene, [scene.chance.choice(pids)])


async def terminate_leader(scene: FaultScene) -> None:
    """Terminate the session that fires schedules or does a periodic duty at this moment."""
    deadline = now() + LEADER_SECONDS
    while not (rows := await scene.stage.rows(LEADERS)):
        if now() > deadline:
            raise NothingToHit("no session led in this time")
        await asyncio.sleep(LOOK_SECONDS)
    await _terminate(scene, [pid for (pid,) in rows])


async def _list_pids(scene: FaultScene, query: str, what: str) -> list[int]:
    pids = [pid for (pid,) in await scene.stage.rows(query)]
    if not pids:
        raise NothingToHit(f"there are no {what}")
    return pids


async def _terminate(scene: FaultScene, backends: list[int]) -> None:
    scene.mark()
    done = [pid for pid in backends if (await scene.stage.rows(TERMINATE, pid)) == [(True,)]]
    scene.mark_over()
    scene.target = f"{len(done)} sessions of PostgreSQL"
    if not done:
        raise NothingToHit("the sessions had ended already")


async def hold_snapshot(scene: FaultScene) -> None:
    """Keep a REPEATABLE READ snapshot open, idle."""
    scene.target = "a snapshot"
    async with _open(scene) as database, database.transaction(unhurried=True, snapshot=True) as tx:
        scene.mark()
        await tx.values("select count(*) from fairlead.leases")
        await scene.pause(scene.chance.uniform(*SNAPSHOT_SECONDS))
        scene.mark_over()


async def hold_rows(scene: FaultScene) -> None:
    """Keep row locks of our tables in an idle transaction."""
    scene.target = scene.chance.choice(sorted(ROW_LOCKS))

    async def work(tx: Tx) -> None:
        locked = await tx.values(ROW_LOCKS[scene.target])
        if not locked:
            raise NothingToHit(f"there were no rows in {scene.target}")
        scene.mark()
        scene.notes.append(f"{len(locked)} rows")
        await scene.pause(scene.chance.uniform(*ROW_LOCK_SECONDS))
        scene.mark_over()

    async with _open(scene) as database:
        await database.transact(work, unhurried=True)


async def lock_table(scene: FaultScene) -> None:
    """Lock a table against everything for a moment, as a migration of a user's might."""
    scene.target = scene.chance.choice(HOT_TABLES)

    async def work(tx: Tx) -> None:
        await tx.wait_for_locks(LOCK_TIMEOUT_SECONDS)
        scene.mark()
        await tx.run(f"lock table fairlead.{scene.target} in access exclusive mode")
        await scene.pause(scene.chance.uniform(*TABLE_LOCK_SECONDS))
        scene.mark_over()

    async with _open(scene) as database:
        await database.transact(work, unhurried=True)


@asynccontextmanager
async def _open(scene: FaultScene) -> AsyncIterator[Database]:
    settings = Settings(database_url=scene.stage.database_url, pool_size=2, connect_timeout_seconds=5.0)
    async with Database(scene.stage.database_url, settings) as database:
        yield database


SESSION_FAULTS = (
    FaultKind(
        "terminate_backends", "pg_terminate_backend of some sessions", "sessions", terminate_backends, 3
    ),
    FaultKind(
        "terminate_listener",
        "pg_terminate_backend of a session with LISTEN",
        "sessions",
        terminate_listener,
        2,
    ),
    FaultKind(
        "terminate_leader",
        "pg_terminate_backend of the session that fires schedules or does a duty",
        "sessions",
        terminate_leader,
        2,
    ),
    FaultKind("hold_snapshot", "an idle transaction keeps an old snapshot", "sessions", hold_snapshot),
    FaultKind("hold_rows", "an idle transaction keeps row locks of our tables", "sessions", hold_rows, 2),
    FaultKind("lock_table", "ACCESS EXCLUSIVE on one of our tables for a moment", "sessions", lock_table),
)
