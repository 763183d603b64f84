"""Each kind of fault of a chaos run, against a real target."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count, islice
from pathlib import Path

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import encryption
from fairlead.chaos import scenario
from fairlead.chaos.faults import (
    clock_faults,
    connection_faults,
    fail_points,
    postgres_faults,
    preloaded,
    session_faults,
)
from fairlead.chaos.faults.disk import mount_disk
from fairlead.chaos.faults.kinds import FAULT_KINDS, choose_kinds
from fairlead.chaos.faults.plan import PAUSES, inject_faults, list_left_out, plan_lane
from fairlead.chaos.faults.proxy import PostgresProxy, Proxies
from fairlead.chaos.faults.session_faults import HOT_TABLES, ROW_LOCKS
from fairlead.chaos.history import FOLDER_VARIABLE, FaultRecord, ProcessRecord, now, read_history
from fairlead.chaos.site.master_keys import create_master_keys
from fairlead.chaos.site.postgres import RunPostgres
from fairlead.chaos.stage import Role
from fairlead.db.database import Database
from fairlead.db.scratch import scratch_folder
from fairlead.errors import DiskNotMounted, InvalidInput, SettingInvalid
from tests import given
from tests.chaos.small_stage import SmallStage, hit, open_small_stage
from tests.processes import FAIRLEAD, started
from tests.waiting import SECONDS, eventually

pytestmark = pytest.mark.thorough

ROLES: tuple[Role, ...] = ("worker", "http_worker", "typescript_worker", "agent", "server", "scheduler")
IGNORES_SIGTERM = "import signal, time; signal.signal(15, 1); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[SmallStage]:
    async with open_small_stage(database_url, tmp_path) as opened:
        yield opened


def read_state(pid: int) -> str:
    """The state of a process, as the kernel calls it: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# Processes


async def test_a_killed_process_of_each_role_is_replaced(stage: SmallStage) -> None:
    before = {one.role: one.pid for one in await stage.start(*ROLES)}
    for role in ROLES:
        record = await hit(stage, f"kill_{role}")
        assert (record.kind, record.pids, record.hit) == (f"kill_{role}", [before[role]], True)
    await stage.wait_until_ready()
    assert not set(before.values()) & {one.pid for one in stage.processes()}
    assert len(stage.processes()) == len(ROLES)


@pytest.mark.parametrize("seed", [1, 3])  # shorter and longer than a lease
async def test_a_stopped_process_goes_on(stage: SmallStage, seed: int) -> None:
    [process] = await stage.start("worker")
    over = asyncio.Event()
    stopping = asyncio.create_task(hit(stage, "stop_worker", seed=seed, over=over))
    await eventually(lambda: read_state(process.pid) == "T", "the process to be stopped")
    over.set()  # the run ends: so does the fault
    record = await stopping
    assert record.pids == [process.pid]
    await eventually(lambda: read_state(process.pid) != "T", "the process to go on")


async def test_all_schedulers_stop_at_once_and_go_on(stage: SmallStage) -> None:
    schedulers = await stage.start("scheduler", "scheduler")
    over = asyncio.Event()
    stopping = asyncio.create_task(hit(stage, "stop_schedulers", over=over))
    await eventually(lambda: {read_state(one.pid) for one in schedulers} == {"T"}, "both to be stopped")
    over.set()
    record = await stopping
    assert record.pids == [one.pid for one in schedulers]
    await eventually(lambda: "T" not in {read_state(one.pid) for one in schedulers}, "both to go on")


async def test_a_process_that_was_asked_to_end_is_replaced(stage: SmallStage) -> None:
    [process] = await stage.start("worker")
    pid = process.pid
    record = await hit(stage, "term_worker")
    assert (record.pids, record.note) == ([pid], "")


async def test_a_process_that_does_not_end_when_asked_is_killed_and_that_is_noted(stage: SmallStage) -> None:
    [process] = await stage.start("worker", code=IGNORES_SIGTERM)
    pid, over = process.pid, asyncio.Event()
    over.set()
    record = await hit(stage, "term_worker", over=over)
    assert record.pids == [pid]
    assert "still ran" in record.note


async def test_a_fault_without_a_target_is_none(stage: SmallStage) -> None:
    record = await hit(stage, "kill_agent")
    assert (record.hit, record.note) == (False, "no agent is running")


async def test_the_labeled_worker_has_a_wrong_label_for_a_while(stage: SmallStage) -> None:
    assert not (await hit(stage, "wrong_labels")).hit  # there is no such worker
    [process] = await stage.start("worker", name=scenario.LABELED_WORKER)
    before, over = process.pid, asyncio.Event()
    over.set()
    record = await hit(stage, "wrong_labels", over=over)
    wrong, right = stage.environments
    assert right == {}
    assert json.loads(wrong["FAIRLEAD_LABELS"]) not in ([], ["chaos=yes"])
    assert (record.target, record.pids[0]) == (scenario.LABELED_WORKER, before)
    assert process.pid not in record.pids
    once = [one.once for one in stage.records() if isinstance(one, ProcessRecord)]
    assert once == [{}, wrong, {}]


async def test_an_upgrade_replaces_all_functions_and_then_one_process_after_the_other(
    stage: SmallStage,
) -> None:
    started = await stage.start("worker", "worker", "scheduler", "server")
    *workers, scheduler, server = [one.pid for one in started]
    before = dict(await stage.rows(FUNCTIONS))
    record = await hit(stage, "upgrade")
    after = dict(await stage.rows(FUNCTIONS))
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] == after[name]] == []
    assert (record.hit, record.note) == (True, "the migration ended with 0")
    replaced = [one.role for one in stage.records() if isinstance(one, ProcessRecord)][len(started) :]
    assert replaced == ["server", "scheduler", "worker", "worker"]
    assert record.pids == [server, scheduler, *workers]


# of those with a file of their own, and the transaction that has written each
FUNCTIONS = """
select p.proname::text, min(p.xmin::text) from pg_proc p join fairlead.function_sources s on s.name = p.proname
where p.pronamespace = 'fairlead'::regnamespace group by p.proname
"""


# Fail points


async def test_a_worker_is_started_again_with_a_fail_point_and_does_not_keep_it(stage: SmallStage) -> None:
    [process] = await stage.start("worker")
    pid, over = process.pid, asyncio.Event()
    hitting = asyncio.create_task(hit(stage, "kill_after_claim", over=over))
    await eventually(lambda: stage.environments, "the process to be started again")
    over.set()
    record = await hitting
    [environment] = stage.environments
    assert environment[fail_points.VARIABLE].startswith("after_claim:")
    # the process does not get there, and must not stay as it is
    assert (record.kind, record.pids[0], len(record.pids)) == ("kill_worker", pid, 2)
    await process.wait_until_ready(SECONDS)
    assert process.pid not in record.pids


@pytest.mark.parametrize("point", ["after_claim", "after_run", "after_finish"])
async def test_a_worker_kills_itself_at_its_fail_point(database_url: str, tmp_path: Path, point: str) -> None:
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_POLL_SECONDS": "0.2",
        FOLDER_VARIABLE: str(tmp_path),
        fail_points.VARIABLE: f"{point}:1",
    }
    async with Fairlead(settings=Settings(database_url=database_url)) as fl:
        with started(
            [FAIRLEAD, "worker", "fairlead.chaos.load.handlers:fl"], env=env, cwd=tmp_path
        ) as process:
            await eventually(lambda: _knows(database_url, scenario.QUICK), "the worker to define its jobs")
            job = await fl.enqueue(scenario.QUICK, tenant="acme")
            assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL
        left = await fl.read(job.id)
    [record] = [one for one in read_history(tmp_path) if isinstance(one, FaultRecord)]
    assert (record.kind, record.pids) == (f"kill_{point}", [process.pid])
    assert left.status == ("succeeded" if point == "after_finish" else "running")


async def test_a_job_function_blocks_its_worker_once(database_url: str, tmp_path: Path) -> None:
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_LEASE_SECONDS": "2",
        FOLDER_VARIABLE: str(tmp_path),
        fail_points.VARIABLE: f"{fail_points.BLOCK}:1",
    }
    async with Fairlead(settings=Settings(database_url=database_url)) as fl:
        with started(
            [FAIRLEAD, "worker", "fairlead.chaos.load.handlers:fl"], env=env, cwd=tmp_path
        ) as process:
            await eventually(lambda: _knows(database_url, scenario.QUICK), "the worker to define its jobs")
            jobs = [await fl.enqueue(scenario.QUICK, tenant="acme") for _ in range(3)]
            for job in jobs:
                await job.result(timeout=SECONDS)
            assert process.poll() is None
    [record] = [one for one in read_history(tmp_path) if isinstance(one, FaultRecord)]
    assert (record.kind, record.pids) == (fail_points.BLOCK, [process.pid])
    assert 1.0 <= record.over_at - record.at <= 4.1


def _knows(url: str, key: str) -> bool:
    with psycopg.connect(url) as connection:
        query = "select from fairlead.job_definitions where key = %s"
        return connection.execute(query, [key]).fetchone() is not None


def test_a_wrong_fail_point_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fail_points.VARIABLE, "in_between:1")
    with pytest.raises(SettingInvalid, match="a probability"):
        fail_points.read_fail_point()


# Clocks


@pytest.mark.skipif(preloaded.find_obstacle() is not None, reason=str(preloaded.find_obstacle()))
def test_only_the_wall_clock_of_a_process_is_wrong() -> None:
    code = "import time; time.sleep(0.001); print(time.time(), time.monotonic())"
    env = {**os.environ, **clock_faults.build_environment_with_offset(-3600)}
    begun = time.time(), time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    wall, monotonic = map(float, done.stdout.split())
    assert begun[0] - 3600 < wall < time.time() - 3600
    assert begun[1] < monotonic < time.monotonic()


@pytest.mark.skipif(preloaded.find_obstacle() is not None, reason=str(preloaded.find_obstacle()))
async def test_a_process_has_a_wrong_clock_for_a_while(stage: SmallStage) -> None:
    [process] = await stage.start("server")
    first, over = process.pid, asyncio.Event()
    over.set()
    record = await hit(stage, "clock_offset", over=over)
    wrong, right = stage.environments
    assert clock_faults.VARIABLE in wrong
    assert right == {}
    assert record.pids[0] == first
    assert process.pid not in record.pids


# PostgreSQL


@pytest.mark.thorough
async def test_postgres_is_killed_restarted_and_without_space_and_comes_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        # the server's user must be able to enter
        place = stack.enter_context(scratch_folder()) / "disk"
        place.mkdir(mode=0o711)
        disk = None
        try:
            disk = stack.enter_context(mount_disk(place))
        except DiskNotMounted as error:
            why = error.message
        postgres = RunPostgres(place / "data")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        stage = await stack.enter_async_context(open_small_stage(postgres.url, tmp_path))
        stage.postgres, stage.disk = postgres, disk
        over = asyncio.Event()
        over.set()
        for name in ("kill_postgres", "restart_postgres"):
            before = postgres.pid
            record = await hit(stage, name, over=over)
            assert (record.kind, record.hit, record.note) == (name, True, "")
            assert postgres.pid != before
            assert await stage.rows("select 1") == [(1,)]
        if disk is None:
            pytest.skip(f"disk_full was not tried: {why}")
        over.clear()
        filling = asyncio.create_task(hit(stage, "disk_full", over=over))
        refused = await _write_until_refused(stage, filling)
        over.set()
        assert (await filling).hit
        assert "No space left" in refused or "closed the connection" in refused
        await stage.rows(WRITE)


@pytest.mark.skipif(preloaded.find_obstacle() is not None, reason=str(preloaded.find_obstacle()))
async def test_a_commit_waits_for_a_slow_disk_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("SYNC_SECONDS", (3600.0,)), ("SLOW_SECONDS", (3600.0, 3600.0))):
        monkeypatch.setattr(postgres_faults, name, seconds)  # only the end of the fault ends the wait
    async with AsyncExitStack() as stack:
        # the server's user must be able to enter
        place = stack.enter_context(scratch_folder())
        postgres = RunPostgres(place / "data")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        stage = await stack.enter_async_context(open_small_stage(postgres.url, tmp_path))
        stage.postgres = postgres
        over = asyncio.Event()
        stack.callback(over.set)  # also if this fails: a slow server does not end
        slowing = asyncio.create_task(hit(stage, "slow_disk", over=over))
        await asyncio.sleep(0)  # it is slow now
        writing = asyncio.create_task(stage.rows(WRITE))
        async with asyncio.timeout(SECONDS):
            while not await stage.rows(SYNCS):
                assert not writing.done()
        over.set()
        record = await slowing
        await writing
    assert (record.hit, record.target, record.note) == (True, "postgres", "each sync takes 3600 s")


SYNCS = "select 1 from pg_stat_activity where wait_event_type = 'IO' and wait_event ~* '^wal(sync|write)'"
WRITE = "select lo_from_bytea(0, decode(repeat('ab', 200000), 'hex'))"


async def _write_until_refused(stage: SmallStage, filling: asyncio.Task[FaultRecord]) -> str:
    while not filling.done():
        try:
            await stage.rows(WRITE)
        except psycopg.Error as error:
            return str(error)
    raise AssertionError("the full disk took everything")


# Keys


async def test_data_keys_are_rotated_by_the_command_with_either_master_key(
    stage: SmallStage, tmp_path: Path
) -> None:
    assert list_why_not(stage, "rotate_keys") == "the run has no master keys"
    stage.master_keys = create_master_keys(tmp_path)
    ring = Settings(database_url=stage.database_url, encryption_key=f"file:{stage.master_keys[0]}")
    async with Fairlead(settings=ring) as fl:
        await fl.database.transact(lambda tx: encryption.enable(tx, given.TESTER))
    over = asyncio.Event()
    rotating = asyncio.create_task(hit(stage, "rotate_keys", over=over))
    await eventually(lambda: has_superseded(stage), "another data key")
    over.set()  # the run ends: so does the command, and it can go on later
    record = await rotating
    assert (record.hit, stage.commands) == (True, [("keys", "rotate", "--data")])
    assert "killed" in record.note


def list_why_not(stage: SmallStage, name: str) -> str:
    return list_left_out(stage, Proxies(PostgresProxy(stage.database_url)), [name])[name]


def has_superseded(stage: SmallStage) -> bool:
    with psycopg.connect(stage.database_url) as connection:
        query = "select from fairlead.tenant_keys where superseded_at is not null"
        return connection.execute(query).fetchone() is not None


# Sessions


async def test_sessions_are_terminated(stage: SmallStage) -> None:
    ours = psycopg.connect(stage.database_url, autocommit=True, application_name="fairlead")
    other = psycopg.connect(stage.database_url, autocommit=True, application_name="of the user")
    with ours, other:
        record = await hit(stage, "terminate_backends")
        assert record.hit
        with pytest.raises(psycopg.OperationalError):
            ours.execute("select 1")
        other.execute("select 1")
        async with asyncio.timeout(SECONDS):
            while await stage.rows(OURS):  # a session says that it ends before it is gone
                await asyncio.sleep(0.01)
    assert not (await hit(stage, "terminate_backends")).hit


OURS = "select 1 from pg_stat_activity where datname = current_database() and application_name = 'fairlead'"


async def test_a_listener_is_terminated(stage: SmallStage) -> None:
    listening = psycopg.connect(stage.database_url, autocommit=True, application_name="fairlead listen")
    with listening:
        assert (await hit(stage, "terminate_listener")).hit
        with pytest.raises(psycopg.OperationalError):
            listening.execute("select 1")


@pytest.mark.parametrize(
    "lead",
    [
        "select pg_try_advisory_xact_lock(hashtextextended('fairlead.scheduler', 0))",
        "select place from fairlead.duties limit 1 for update skip locked",
    ],
)
async def test_the_session_that_leads_is_terminated(stage: SmallStage, lead: str) -> None:
    with psycopg.connect(stage.database_url) as leading, psycopg.connect(stage.database_url) as other:
        other.execute("select pg_try_advisory_xact_lock(hashtextextended('other', 0))")
        leading.execute(lead.encode())
        record = await hit(stage, "terminate_leader")
        assert (record.hit, record.target) == (True, "1 sessions of PostgreSQL")
        with pytest.raises(psycopg.OperationalError):
            leading.execute("select 1")
        other.execute("select 1")


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("hold_snapshot", "a snapshot"),
        *(("hold_rows", table) for table in ROW_LOCKS),
        *(("lock_table", table) for table in HOT_TABLES),
    ],
)
async def test_a_session_holds_something_until_the_fault_is_over(
    stage: SmallStage, db: Database, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    for seconds in ("ROW_LOCK_SECONDS", "SNAPSHOT_SECONDS", "TABLE_LOCK_SECONDS"):
        monkeypatch.setattr(session_faults, seconds, (600.0, 600.0))  # only its end ends it
    await db.transact(given.queued_job)
    await stage.run("insert into fairlead.limit_locks (scope, scope_id) values ('tenant', gen_random_uuid())")
    over = asyncio.Event()
    holding = asyncio.create_task(hit(stage, name, seed=_find_seed(name, target), over=over))
    async with asyncio.timeout(SECONDS):
        while not await stage.rows(HOLDS):
            assert not holding.done(), holding.result()
    over.set()
    record = await holding
    assert (record.target, record.hit) == (target, True)
    assert await stage.rows(HOLDS) == []


HOLDS = """
select 1 from pg_stat_activity
where state = 'idle in transaction' and datname = current_database() and application_name = 'fairlead'
    and query !~ 'set_config'
"""


def _find_seed(name: str, target: str) -> int:
    """A seed by which the fault chooses this target."""
    targets = {"hold_rows": sorted(ROW_LOCKS), "lock_table": HOT_TABLES}.get(name, [target])
    return next(seed for seed in count() if random.Random(seed).choice(targets) == target)  # noqa: S311


# Connections


@pytest.mark.parametrize(
    "name", ["reset_connections", "stall_connections", "delay_connections", "swallow_commits"]
)
async def test_connections_through_the_proxy_work_again_after_the_fault(
    stage: SmallStage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # until it has swallowed what it wants, however seldom this machine commits
    monkeypatch.setattr(connection_faults, "SWALLOW_SECONDS", 100.0)
    with PostgresProxy(stage.database_url) as proxy:
        ends, over = asyncio.Event(), asyncio.Event()
        using = asyncio.create_task(_use(proxy.url, ends))
        try:
            await eventually(proxy.count_connections, "a connection")
            asyncio.get_running_loop().call_later(0.3, over.set)
            record = await hit(stage, name, proxies=Proxies(proxy), over=over)
        finally:
            ends.set()
            await using
        assert (record.target, record.hit) == ("postgres", True)
        async with await psycopg.AsyncConnection.connect(proxy.url) as connection:
            await connection.execute("select 1")


async def _use(url: str, ends: asyncio.Event) -> None:
    """Commit something again and again, on a new connection if the old one is lost."""
    while not ends.is_set():
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                while not ends.is_set():
                    await connection.execute("update fairlead.tenants set slug = slug")
        except psycopg.OperationalError:
            continue


async def test_no_response_is_swallowed_where_there_is_no_server(stage: SmallStage) -> None:
    assert not (await hit(stage, "swallow_responses")).hit


# The plan


def test_a_seed_gives_the_same_faults() -> None:
    def plan(seed: int) -> list[tuple[float, str, int]]:
        return [
            (fault.pause, fault.kind.name, fault.seed)
            for lane in PAUSES
            for fault in islice(plan_lane(seed, lane, FAULT_KINDS), 50)
        ]

    assert plan(1) == plan(1)
    assert plan(1) != plan(2)


def test_twenty_minutes_have_hundreds_of_faults_of_each_kind_and_few_of_postgres() -> None:
    """As far as the pauses decide; each fault also takes its time."""
    planned: Counter[str] = Counter()
    for lane in PAUSES:
        at = 0.0
        for fault in plan_lane(7, lane, FAULT_KINDS):
            at += fault.pause + 5
            if at > 1200:
                break
            planned[fault.kind.name] += 1
    assert set(planned) == {kind.name for kind in FAULT_KINDS}
    assert sum(planned.values()) >= 500
    of_postgres = [kind.name for kind in FAULT_KINDS if kind.lane == "postgres"]
    assert 15 <= sum(planned[name] for name in of_postgres) <= 35


def test_each_kind_has_a_name_and_a_text_of_its_own() -> None:
    assert len({kind.name for kind in FAULT_KINDS}) == len(FAULT_KINDS)
    assert all(kind.text for kind in FAULT_KINDS)


def test_unknown_kinds_are_refused() -> None:
    assert [kind.name for kind in choose_kinds(["kill_worker"])] == ["kill_worker"]
    with pytest.raises(InvalidInput, match="kill_worker"):
        choose_kinds(["kill_everybody"])


async def test_what_a_stage_lacks_is_left_out_with_a_reason(stage: SmallStage) -> None:
    await stage.start("worker")
    left_out = list_left_out(stage, Proxies(PostgresProxy(stage.database_url)))
    assert {"kill_postgres", "disk_full", "kill_agent", "swallow_responses"} <= left_out.keys()
    assert "kill_worker" not in left_out


async def test_all_faults_are_over_at_the_end(stage: SmallStage) -> None:
    await stage.start("worker", "worker", "server")
    with PostgresProxy(stage.database_url) as proxy:
        kinds = ["kill_worker", "stop_worker", "stop_server", "terminate_backends", "reset_connections"]
        until = now() + 3
        await inject_faults(stage, Proxies(proxy), seed=3, kinds=kinds, history=stage.history, until=until)
    await stage.wait_until_ready()
    assert all(read_state(one.pid) != "T" for one in stage.processes())
    assert len(stage.processes()) == 3
    assert stage.faults()
    assert {record.kind for record in stage.faults()} <= set(kinds)
