"""A run: PostgreSQL, a server, a worker and a scheduler with their usual settings; victims; attackers; a report."""

import asyncio
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import msgspec

from fairlead.actions import access, triggers
from fairlead.chaos.history import FOLDER_VARIABLE, now
from fairlead.chaos.hostile.app import EVENT, ON_EVENT, QUICK, fl
from fairlead.chaos.hostile.attacker import PLAN_VARIABLE, ROLES, HostilePlan
from fairlead.chaos.hostile.attacks import ATTACKS
from fairlead.chaos.hostile.report import (
    LEAST_SECONDS,
    MOST_TIMES,
    HostileResult,
    find_excesses,
    find_recovery,
    find_suspects,
    measure_answers,
    read_sent,
)
from fairlead.chaos.hostile.victims import UNANSWERED, Answered, Victim
from fairlead.chaos.run_history import RunHistory
from fairlead.chaos.site.access import RUN_VARIABLE
from fairlead.chaos.site.fleet import FAIRLEAD, build_environment
from fairlead.chaos.site.leftovers import kill_marked
from fairlead.chaos.site.ports import find_free_ports
from fairlead.chaos.site.postgres import RunPostgres
from fairlead.chaos.site.processes import READY_SECONDS, ProcessPlan, RunProcess
from fairlead.chaos.spread import Spread, measure_spread
from fairlead.chaos.stage import Role as ProcessRole
from fairlead.db import migrate
from fairlead.db.tx import Tx
from fairlead.handlers.supervisor import find_descendants
from fairlead.model.access import Role
from fairlead.model.quota import Quota
from fairlead.settings import PREFIX, Settings

APP = "fairlead.chaos.hostile.app:fl"
ATTACKER = (sys.executable, "-m", "fairlead.chaos.hostile.attacker")
VICTIMS = ("acme", "globex")
HOSTILE = "hostile"
# What it may store: the disk is not what is tested.
STORED_BYTES = 4 << 30
# Half of the slots of a worker: jobs that take long are held back by this limit alone.
MAX_RUNNING = 50
WARM_UP_SECONDS = 5.0
LOOK_SECONDS = 0.2
# How long victims go on after the attack.
AFTER_SECONDS = 8.0
# What still waits counts as long as it has waited.
WAITS = """
select extract(epoch from coalesce(j.started_at, clock_timestamp()) - j.queued_at)::float8
from fairlead.jobs j join fairlead.job_definitions d on d.id = j.definition_id
where d.key = %s and j.queued_at > to_timestamp(%s)
"""
EVENT_WAITS = """
select extract(epoch from coalesce(j.queued_at, clock_timestamp()) - e.occurred_at)::float8
from fairlead.events e left join fairlead.jobs j on j.source_ref = e.id::text and j.tenant_id = e.tenant_id
where e.name = %s and e.occurred_at > to_timestamp(%s)
"""
NOW = "select extract(epoch from clock_timestamp())::float8"
Tell = Callable[[str], object]


class HostileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does, and for how long."""

    folder: Path
    seed: int
    seconds: float
    alone_seconds: float = 20.0
    attacks: Sequence[str] = tuple(ATTACKS)
    fuzz: bool = True
    attackers: int = 2


class Town:
    """The processes and the tenants of a run."""

    def __init__(self, options: HostileOptions, database_url: str) -> None:
        [port] = find_free_ports(1)
        self.options = options
        self.database_url = database_url
        self.url = f"http://127.0.0.1:{port}"
        self.run_id = uuid4().hex
        self.memory = Counter[str]()
        self.tokens: dict[str, dict[str, str]] = defaultdict(dict)
        self.victims: list[Victim] = []
        self._history = RunHistory(options.folder)
        self._plan_file = options.folder / "plan.json"
        self.processes = [
            self._process("server", [*FAIRLEAD, "serve", "--port", str(port)], "serving http"),
            self._process("worker", [*FAIRLEAD, "worker", APP], "; Ctrl-C stops"),
            self._process("scheduler", [*FAIRLEAD, "scheduler"], "firing schedules"),
        ]
        self._attackers = [
            self._process("client", [*ATTACKER, "--seed", str(options.seed + number)], "ready", number)
            for number in range(options.attackers)
        ]

    def _process(self, role: ProcessRole, argv: list[str], ready: str, number: int = 0) -> RunProcess:
        environment = {
            f"{PREFIX}DATABASE_URL": self.database_url,
            FOLDER_VARIABLE: str(self.options.folder),
            PLAN_VARIABLE: str(self._plan_file),
            RUN_VARIABLE: self.run_id,
        }
        plan = ProcessPlan(f"{role}-{number}", role, lambda _: argv, build_environment(environment), ready)
        return RunProcess(plan, self.options.folder, self._history)

    @property
    def everything(self) -> list[RunProcess]:
        """The processes of the product, and the attackers: one that ends is a fault of the product, or of this tool."""
        return [*self.processes, *self._attackers]

    async def open(self) -> None:
        """Start the processes, and create the tenants with their tokens, and the triggers of the victims."""
        await self._start(self.processes)
        for slug in (*VICTIMS, HOSTILE):
            tenant = await fl.add_tenant(
                slug, max_running=MAX_RUNNING, quotas={Quota.STORED_BYTES: STORED_BYTES}
            )
            for role in ROLES if slug == HOSTILE else ("tenant_admin",):
                self.tokens[slug][role] = await self._create_token(tenant.id, Role(role))
        for slug in VICTIMS:
            await fl.database.transact(partial(_add_trigger, slug=slug))
            self.victims.append(Victim(self.url, slug, self.tokens[slug]["tenant_admin"]))

    async def _create_token(self, tenant_id: UUID | None, role: Role) -> str:
        async with fl.database.transaction() as tx:
            made = await access.create_token(tx, fl.principal, name="hostile", role=role, tenant_id=tenant_id)
        return made.secret

    @asynccontextmanager
    async def attack(self) -> AsyncIterator[None]:
        """Attack for the length of the block."""
        rows = await self.rows("select id from fairlead.jobs order by id limit 50")
        plan = HostilePlan(
            url=self.url,
            tokens=self.tokens[HOSTILE],
            foreign_ids=[str(job_id) for (job_id,) in rows],
            folder=str(self.options.folder),
            attacks=list(self.options.attacks),
            fuzz=self.options.fuzz,
        )
        self._plan_file.touch(mode=0o600)
        self._plan_file.write_bytes(msgspec.json.encode(plan))
        await self._start(self._attackers)
        try:
            yield
        finally:
            await asyncio.gather(*(process.stop() for process in self._attackers))

    async def rows(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        return await fl.database.reach(lambda tx: tx.values(query, list(params) or None))

    async def watch(self) -> None:
        """Note the most memory of each process, until canceled."""
        while True:
            for process in self.processes:
                size = sum(map(read_memory, (process.pid, *find_descendants(process.pid))))
                self.memory[process.role] = max(self.memory[process.role], size)
            await asyncio.sleep(LOOK_SECONDS)

    async def read_longest_step(self) -> float:
        """The longest step of a request so far, as the server's metrics say."""
        token = await self._create_token(None, Role.SUPER_ADMIN)
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.get(f"{self.url}/metrics", headers={"Authorization": f"Bearer {token}"})
        name = "fairlead_loop_longest_step_seconds "
        return float(next(line for line in answer.text.splitlines() if line.startswith(name)).split()[1])

    async def _start(self, processes: Sequence[RunProcess]) -> None:
        for process in processes:
            await process.start()
        await asyncio.gather(*(process.wait_until_ready(READY_SECONDS) for process in processes))

    async def close(self) -> None:
        """End all processes."""
        for victim in self.victims:
            await victim.close()
        await asyncio.gather(*(process.stop() for process in self.everything))
        kill_marked(self.run_id)
        self._history.close()


async def _add_trigger(tx: Tx, slug: str) -> None:
    await triggers.create(
        tx,
        fl.principal,
        slug,
        {
            "label": "victim",
            "trigger_type": "event",
            "event_name": EVENT,
            "definition_key": ON_EVENT,
            "dedupe_window_seconds": 0,
            "payload_template": {"n": "{{event.n}}"},
        },
    )


def read_memory(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    return int(sizes[0]) << 10 if sizes else 0


@asynccontextmanager
async def open_town(options: HostileOptions) -> AsyncIterator[Town]:
    """Start everything but the attackers; nothing is left at the end of the block."""
    options.folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        postgres = RunPostgres(_make_open_folder(stack) / "data")
        await postgres.start()
        stack.push_async_callback(postgres.stop)
        settings = Settings(database_url=postgres.url, pool_size=4)
        await migrate.up(postgres.url, settings.schema)
        fl.settings = settings
        await stack.enter_async_context(fl)
        town = Town(options, postgres.url)
        stack.push_async_callback(town.close)
        await town.open()
        yield town


def _make_open_folder(stack: AsyncExitStack) -> Path:
    """A temporary folder that others may enter: as root the server runs as another user."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-hostile-")))
    folder.chmod(0o711)
    return folder


async def run_hostile(options: HostileOptions, tell: Tell, stop: asyncio.Event) -> HostileResult:
    """Measure the victims alone, beside the attackers, and after them. When `stop` is set, the attack ends early."""
    tell("starting PostgreSQL and the processes")
    async with open_town(options) as town:
        works = [asyncio.create_task(work) for work in (town.watch(), *(one.work() for one in town.victims))]
        try:
            await _wait(stop, WARM_UP_SECONDS)
            began_at = now()
            tell("the victims work alone")
            await _wait(stop, options.alone_seconds)
            [(attacked_from,)] = await town.rows(NOW)
            attack_at = now()
            tell("the attackers begin")
            async with town.attack():
                await _wait(stop, options.seconds)
            ended_at = now()
            tell("the attackers have ended")
            await _wait(asyncio.Event(), AFTER_SECONDS)
        finally:
            for work in works:
                work.cancel()
            ends = await asyncio.gather(*works, return_exceptions=True)
        for end in ends:
            if not isinstance(end, asyncio.CancelledError) and isinstance(end, BaseException):
                raise end
        answers = [answer for victim in town.victims for answer in victim.answers]
        waits = [seconds for (seconds,) in await town.rows(WAITS, QUICK, attacked_from)]
        event_waits = [seconds for (seconds,) in await town.rows(EVENT_WAITS, EVENT, attacked_from)]
        longest_step = await town.read_longest_step()
        restarts = {process.name: process.starts - 1 for process in town.everything if process.starts > 1}
    sent = read_sent(options.folder)
    alone = measure_answers([one for one in answers if began_at <= one.at < attack_at])
    beside_answers = [one for one in answers if attack_at <= one.at < ended_at]
    bound = max(MOST_TIMES * alone.p99, LEAST_SECONDS)
    result = HostileResult(
        seed=options.seed,
        seconds=ended_at - attack_at,
        alone=alone,
        beside=measure_answers(beside_answers),
        routes=_measure_routes(beside_answers),
        waits_of_jobs=measure_spread(waits),
        waits_of_events=measure_spread(event_waits),
        refused=_count_refused(answers),
        restarts=restarts,
        memory=dict(town.memory),
        recovered_after=find_recovery(answers, ended_at, bound),
        sent=sum(one.name not in ATTACKS for one in sent),
        answers=dict(Counter(one.status for one in sent if one.name not in ATTACKS)),
        attacks=dict(Counter(one.name for one in sent if one.name in ATTACKS)),
        suspects=find_suspects([one for one in beside_answers if one.seconds > bound], sent),
        longest_step=longest_step,
    )
    return msgspec.structs.replace(result, findings=find_excesses(result))


def _measure_routes(answers: Sequence[Answered]) -> dict[str, Spread]:
    routes = defaultdict(list)
    for answer in answers:
        routes[answer.name].append(answer)
    return {name: measure_answers(some) for name, some in routes.items()}


def _count_refused(answers: Sequence[Answered]) -> dict[str, int]:
    """The answers that were no success: victims ask for nothing that may be refused."""
    refused = Counter[str]()
    for answer in answers:
        # the last requests of a victim have no answer yet when it stops
        is_last = answer.status == UNANSWERED and answer.seconds < LEAST_SECONDS
        if not is_last and not 200 <= answer.status < 300:
            refused[f"{answer.name}: {answer.status}"] += 1
    return dict(refused)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
