"""The explorer: runs a scenario once for each interleaving of its participants' steps.

A participant is the product's own code in a task, on a connection of its own. It waits before each statement and before
each commit, and the explorer permits one step at a time. A participant that waits for a lock of another one is left
waiting, and the others go on. The first run takes the first participant that can act, at every step; each further run
repeats the last one up to a step where another participant could have acted, and lets that one act there. So the runs are
all the interleavings that there are, each once. Of interleavings that differ only in the order of adjacent steps which
cannot notice each other, one is run (sleep sets), unless every one is asked for. Of two participants that do the same, the
first one begins, unless every one is asked for: what follows if the second one begins is the same with their names exchanged.

With a number of switches, the runs are those in which a participant that could act is interrupted at most so often: few
of all, and faults of the protocol are among them (test_mutants.py proves it). One is enough for most scenarios.
"""

import asyncio
import itertools
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from psycopg import AsyncConnection

from fairlead import Fairlead, Settings
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.store import jobs, workflows
from tests.interleavings import stops as stop_points
from tests.interleavings import virtual_time
from tests.interleavings.steps import CONTENDED, StepKind, SteppedDatabase, classify
from tests.interleavings.stops import LOCK_CLASS, MOST_STOPS, Stops, key_of
from tests.waiting import SECONDS

# A participant that has not arrived after this time may wait for a lock.
LOOK_SECONDS = 0.002

# Which participants wait at a stop, and which wait for locks of others.
WAITING = f"""
select p.pid, (
        select l.objid::integer from pg_locks l
        where l.pid = p.pid and not l.granted and l.locktype = 'advisory' and l.classid = {LOCK_CLASS}
        limit 1),
    pg_blocking_pids(p.pid)
from unnest(%s::integer[]) as p(pid)
"""
HELD_KEYS = "select pg_advisory_lock({lock_class}, k) from unnest(%s::integer[]) as k"
# Everything that scenarios write, children before parents.
WRITTEN = [
    "trigger_firings",
    "dedupe_windows",
    "events_waiting",
    "events",
    "job_triggers",
    "job_steps",
    "job_signals",
    "approvals",
    "ended_children",
    "workflow_steps",
    "run_jobs",
    "leases",
    "ready",
    "later",
    "active_keys",
    "job_attempts",
    "failures",
    "counts",
    "count_levels",
    "usage_hourly",
    "lost_workers",
    "limit_locks",
    "deliveries",
    "worker_claims",
    "job_records",
    "workflow_runs",
    "hosts",
    "job_workers",
    "expiries",
    "rate_buckets",
    "key_locks",
]
CLEAR = f"""
create or replace function fairlead.clear() returns void language plpgsql as $$
begin
    {" ".join(f"delete from fairlead.{table};" for table in WRITTEN)}
    update fairlead.tenants set max_running = null, paused_at = null
    where max_running is not null or paused_at is not null;
    update fairlead.job_definitions set max_running = null, max_running_per_tenant = null, paused_at = null, by_key = null
    where coalesce(max_running, max_running_per_tenant) is not null or paused_at is not null or by_key is not null;
end
$$
"""
# One statement, and so one snapshot: what disagrees, and which limits, keys and attempt numbers are wrong.
PROBLEMS = f"""
select 'job ' || coalesce(job_id::text, ''), problem
from ({jobs.sql.inconsistencies.rstrip().rstrip(";")}) as found(job_id, problem)
union all
select 'tenant ' || t.slug, 'is over its limit' from fairlead.tenants t
where (select count(*) from fairlead.leases l where l.tenant_id = t.id) > t.max_running
union all
select 'definition ' || d.key, 'is over its limit' from fairlead.job_definitions d
where (select count(*) from fairlead.leases l where l.definition_id = d.id) > d.max_running
union all
select 'definition ' || d.key || ' of tenant ' || t.slug, 'is over its limit'
from fairlead.job_definitions d, fairlead.tenants t
where (select count(*) from fairlead.leases l where l.definition_id = d.id and l.tenant_id = t.id)
    > d.max_running_per_tenant
union all
select 'host ' || h.name, 'is over its limit' from fairlead.hosts h
where (select count(*) from fairlead.leases l where l.host_id = h.id) > h.max_running
union all
select 'job ' || a.job_id, 'has wrong attempt numbers' from fairlead.attempts a group by a.job_id
having count(*) <> max(a.attempt_no) or min(a.attempt_no) <> 1 or count(distinct a.attempt_no) <> count(*)
union all
select 'key ' || j.dedupe_key, 'has two active jobs' from fairlead.jobs j
where j.dedupe_key is not null and j.status <= 'running'
group by j.tenant_id, j.dedupe_key having count(*) > 1
"""

HAS_RUNS = (
    "select exists (select from fairlead.workflow_runs) or exists (select from fairlead.workflow_steps)"
)

World = dict[str, Any]
Operation = Callable[[SteppedDatabase, World], Awaitable[Any]]


class Results(dict[str, Any]):
    """What each participant returned or raised."""

    def values_of(self, kind: type) -> list[Any]:
        return [value for value in self.values() if isinstance(value, kind)]


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """Participants that act at the same time, what they begin with, and what must be true at the end."""

    name: str
    prepare: Callable[[Tx], Awaitable[World]]
    participants: Mapping[str, Operation]
    check: Callable[[Tx, World, Results], Awaitable[None]]
    # inside stored functions
    stops: Stops = msgspec.field(default_factory=dict)
    # whether the participants do the same, so that they can be exchanged
    are_alike: bool = False
    # whether time passes when a participant lets it
    has_virtual_time: bool = False
    # errors that a participant may end with
    allowed: tuple[type[Exception], ...] = ()
    contended: re.Pattern[str] = CONTENDED
    # how often participants that could act are interrupted in `make test`: as often as the mutants need
    switches: int = 1
    # sources of stored functions that replace the product's
    functions: Mapping[str, str] = msgspec.field(default_factory=dict)


class Step(msgspec.Struct):
    """One choice: who could act, and who did."""

    enabled: list[str]
    # what each of them would do
    kinds: dict[str, StepKind]
    # those whose next step was tried before an equivalent choice
    asleep: set[str]
    chosen: str = ""
    did: str = ""
    # those that were chosen here in earlier runs
    tried: set[str] = msgspec.field(default_factory=set)

    def list_untried(self) -> list[str]:
        return [name for name in self.enabled if name not in self.asleep | self.tried | {self.chosen}]

    def find_asleep_after(self) -> set[str]:
        """Those that need not be tried at the next step: their step was tried here, and the chosen one did not matter to it."""
        chosen = self.kinds[self.chosen]
        return {name for name in self.asleep | self.tried if self.kinds[name].is_independent_of(chosen)}


class FindingError(AssertionError):
    """An interleaving that broke a rule."""

    def __init__(self, scenario: Scenario, steps: Sequence[Step], problem: str) -> None:
        order = "\n".join(f"  {one.chosen}: {one.did}" for one in steps)
        super().__init__(f"{scenario.name}: {problem}\nafter\n{order}")
        self.problem = problem


class Explored(NamedTuple):
    """How many interleavings were walked, and how many steps they had together."""

    interleavings: int
    steps: int


class Connections(NamedTuple):
    """A database in which scenarios are run: the explorer's own connections, and one for each participant."""

    control: Database
    watch: AsyncConnection[Any]
    participants: Sequence[SteppedDatabase]
    library: Fairlead


@asynccontextmanager
async def connect(
    library: Fairlead, *, participants: int = 2, has_virtual_time: bool = False
) -> AsyncIterator[Connections]:
    """Connect to the library's database, which should be a copy for this purpose."""
    url = library.database.url
    clock = virtual_time.SESSION if has_virtual_time else {}
    # planning the check of the tables would take longer than all else
    session = {"plan_cache_mode": "force_generic_plan", "jit": "off", **clock}
    async with AsyncExitStack() as stack:
        control = await stack.enter_async_context(Database(url, Settings(lease_seconds=600), session=session))
        watch = await stack.enter_async_context(await AsyncConnection.connect(url, autocommit=True))
        await watch.execute(CLEAR.encode())
        if has_virtual_time:
            await virtual_time.install(watch)
        found = [
            await stack.enter_async_context(SteppedDatabase(url, number, clock))
            for number in range(1, participants + 1)
        ]
        yield Connections(control, watch, found, library)


async def explore(
    connections: Connections, scenario: Scenario, *, every: bool = False, switches: int | None = None
) -> Explored:
    """Walk every interleaving of a scenario; FindingError at the first one that breaks a rule.

    With `every`, equivalent interleavings are run, too. With `switches`, only those that interrupt participants at most
    so often.
    """
    watch = connections.watch
    await stop_points.apply_functions(watch, scenario.functions, scenario.stops)
    try:
        return await Explorer(scenario, connections, every=every, switches=switches).walk()
    finally:
        await watch.execute("select pg_advisory_unlock_all(), fairlead.clear()")
        originals = {name: stop_points.read_function(name) for name in {*scenario.functions, *scenario.stops}}
        await stop_points.apply_functions(watch, originals, {})


class Explorer:
    """Walks every interleaving of a scenario in one database."""

    def __init__(
        self, scenario: Scenario, connections: Connections, *, every: bool, switches: int | None
    ) -> None:
        self._scenario = scenario
        self._control = connections.control
        self._watch = connections.watch
        self._library = connections.library
        self._participants = dict(zip(scenario.participants, connections.participants, strict=False))
        self._every = every
        self._switches = switches
        self._changed = asyncio.Event()
        # participants that wait at a stop, and at which
        self._stopped: dict[str, int] = {}
        # the locks of stops that participants have passed
        self._passed: list[int] = []
        self._steps: list[Step] = []

    async def walk(self) -> Explored:
        """Run every interleaving; FindingError at the first one that breaks a rule."""
        if self._scenario.stops:
            numbers = [one.number for one in self._participants.values()]
            await self._hold(
                [key_of(number, stop) for number in numbers for stop in range(1, MOST_STOPS + 1)]
            )
        runs, steps = 0, 0
        prefix: list[Step] | None = []
        while prefix is not None:
            if await self._run(prefix):
                runs, steps = runs + 1, steps + len(self._steps)
            prefix = _find_next_prefix(self._steps)
        return Explored(runs, steps)

    async def _run(self, prefix: Sequence[Step]) -> bool:
        """One interleaving: the given choices, and then always the first participant that can act.

        False if it was given up, as equivalent to an earlier one.
        """
        world = await self._prepare()
        tasks = {name: self._start(name, world) for name in self._participants}
        try:
            await self._settle()
            while enabled := self._list_enabled():
                place = len(self._steps)
                step = prefix[place] if place < len(prefix) else self._build_step(enabled)
                self._steps.append(step)
                if not step.chosen:
                    return False
                if step.chosen not in enabled:
                    raise self._finding(f"{step.chosen} could act here in the run before, and cannot now")
                step.did = await self._permit(step.chosen)
                await self._settle()
                if not self._participants[step.chosen].is_in_transaction:
                    await self._check_tables()
            world["order"] = [(one.chosen, one.did) for one in self._steps]
            await self._check_end(world, Results({name: _result_of(task) for name, task in tasks.items()}))
        finally:
            await self._abandon(tasks)
        return True

    def _build_step(self, enabled: list[str]) -> Step:
        asleep = self._steps[-1].find_asleep_after() if self._steps and not self._every else set[str]()
        if self._scenario.are_alike and not self._steps and not self._every:
            enabled = enabled[:1]
        if self._has_switched_enough() and (last := self._steps[-1].chosen) in enabled:
            enabled = [last]
        step = Step(enabled, {name: self._classify(name) for name in enabled}, asleep & set(enabled))
        step.chosen = next(iter(step.list_untried()), "")
        return step

    def _has_switched_enough(self) -> bool:
        """Whether participants that could act were interrupted as often as they may be."""
        if self._switches is None:
            return False
        pairs = itertools.pairwise(self._steps)
        return (
            sum(one.chosen != after.chosen and one.chosen in after.enabled for one, after in pairs)
            >= self._switches
        )

    def _classify(self, name: str) -> StepKind:
        turns = self._participants[name].turns
        if turns.at is None:  # within a stored function
            return StepKind(commits=not turns.in_transaction)
        return classify(turns.at, in_transaction=turns.in_transaction)

    async def _prepare(self) -> World:
        self._steps = []
        self._stopped = {}
        await self._hold(self._passed)
        self._passed = []
        async with self._control.transaction() as tx:
            await tx.run("select fairlead.clear()")
            if self._scenario.has_virtual_time:
                await tx.run("select fairlead.begin_time()")
            world = await self._scenario.prepare(tx)
        world["library"] = self._library
        if self._scenario.stops:
            for one in self._participants.values():
                await one.single(lambda tx: tx.run("set explorer.stop = '0'"))
        return world

    def _start(self, name: str, world: World) -> asyncio.Task[Any]:
        database = self._participants[name]
        database.turns.contended = self._scenario.contended
        database.turns.changed = self._changed

        async def act() -> Any:
            return await self._scenario.participants[name](database, world)

        database.turns.task = asyncio.create_task(act(), name=name)
        database.turns.task.add_done_callback(lambda _: self._changed.set())
        return database.turns.task

    def _list_enabled(self) -> list[str]:
        """Those that can act now. If the others wait for one another's locks, PostgreSQL has to end one of them."""
        enabled = [
            name for name, one in self._participants.items() if one.turns.is_parked or name in self._stopped
        ]
        if not enabled and not all(one.turns.is_done for one in self._participants.values()):
            raise self._finding("deadlock: every participant waits for another one")
        return enabled

    async def _permit(self, name: str) -> str:
        """Let a participant take one step. What it was about to do."""
        stop = self._stopped.pop(name, None)
        if stop is None:
            turns = self._participants[name].turns
            did = " ".join((turns.at or "").split())[:120]
            turns.permit()
            return did
        self._passed.append(stop)
        await self._watch.execute("select pg_advisory_unlock(%s, %s)", (LOCK_CLASS, stop))
        return f"goes on from stop {stop % 100}"

    async def _settle(self) -> None:
        """Wait until each participant is at a step, at its end, or waits for a lock of another one."""
        deadline = asyncio.get_running_loop().time() + SECONDS
        while moving := self._list_moving():
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)
            except TimeoutError:
                if await self._are_waiting(moving):
                    return
            if asyncio.get_running_loop().time() > deadline:
                raise self._finding(f"{', '.join(moving)} did not end a step in {SECONDS:.0f} s")

    def _list_moving(self) -> list[str]:
        return [
            name
            for name, one in self._participants.items()
            if not (one.turns.is_parked or one.turns.is_done or name in self._stopped)
        ]

    async def _are_waiting(self, moving: Sequence[str]) -> bool:
        """Whether all of these wait for locks of participants; notes those that have come to a stop."""
        by_pid = {one.pid: name for name, one in self._participants.items()}
        cursor = await self._watch.execute(WAITING, ([self._participants[name].pid for name in moving],))
        waiting = True
        for pid, stop, blockers in await cursor.fetchall():
            if stop is not None:
                self._stopped[by_pid[pid]] = stop
            elif not blockers or not set(blockers) <= by_pid.keys():
                waiting = False
        return waiting

    async def _check_tables(self) -> None:
        """What has to be true after each commit."""
        problems = await self._control.single(lambda tx: tx.values(PROBLEMS))
        if problems:
            raise self._finding("; ".join(f"{subject} {problem}" for subject, problem in problems))

    async def _check_end(self, world: World, results: Results) -> None:
        for name, value in results.items():
            if isinstance(value, BaseException) and not isinstance(value, self._scenario.allowed):
                text = "".join(traceback.format_exception(value, limit=-3))
                raise self._finding(f"{name} failed: {text}")
        async with self._control.transaction() as tx:
            [(has_runs,)] = await tx.values(HAS_RUNS)
            problems = await workflows.list_inconsistencies(tx) if has_runs else []
            try:
                await self._scenario.check(tx, world, results)
            except AssertionError as error:
                raise self._finding(
                    f"{str(error) or traceback.format_exc(limit=-1)}; results: {results}"
                ) from error
        if problems:
            raise self._finding(f"runs: {problems}")

    def _finding(self, problem: str) -> FindingError:
        return FindingError(self._scenario, self._steps, problem)

    async def _hold(self, keys: Sequence[int]) -> None:
        if keys:
            await self._watch.execute(HELD_KEYS.format(lock_class=LOCK_CLASS).encode(), (list(keys),))

    async def _abandon(self, tasks: Mapping[str, asyncio.Task[Any]]) -> None:
        """After a finding: end what is still under way."""
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def _result_of(task: asyncio.Task[Any]) -> Any:
    error = task.exception()
    return task.result() if error is None else error


def _find_next_prefix(steps: Sequence[Step]) -> list[Step] | None:
    """The choices up to the last step at which another participant is left to try; None if there is none."""
    for place in reversed(range(len(steps))):
        step = steps[place]
        if step.chosen and (rest := step.list_untried()):
            step.tried.add(step.chosen)
            step.chosen = rest[0]
            return list(steps[: place + 1])
    return None
