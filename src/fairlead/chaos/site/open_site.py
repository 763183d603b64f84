"""A run's PostgreSQL, proxies and processes: what faults touch and what the run starts and stops."""

import asyncio
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from fairlead.chaos.faults.disk import mount_disk
from fairlead.chaos.faults.plan import Proxies
from fairlead.chaos.faults.proxy import HttpProxy, PostgresProxy
from fairlead.chaos.history import FOLDER_VARIABLE
from fairlead.chaos.load.commands import write_commands
from fairlead.chaos.load.secret_values import create_secrets
from fairlead.chaos.load.typescript import find_typescript_worker
from fairlead.chaos.run_history import RunHistory
from fairlead.chaos.scenario import DEFINITIONS, LEASE_SECONDS, FleetPlan
from fairlead.chaos.site.access import RUN_VARIABLE
from fairlead.chaos.site.fleet import FleetPlace, RunPaths, build_environment, plan_processes
from fairlead.chaos.site.leftovers import find_orphans, kill_marked
from fairlead.chaos.site.master_keys import build_key_environment, create_master_keys
from fairlead.chaos.site.ports import find_free_ports
from fairlead.chaos.site.postgres import RunPostgres
from fairlead.chaos.site.processes import READY_SECONDS, RunProcess
from fairlead.chaos.stage import Role, StagedDisk, StagedPostgres, StagedProcess
from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.db.scratch import scratch_database
from fairlead.errors import DiskNotMounted
from fairlead.settings import PREFIX, Settings

CONNECT_SECONDS = 10.0


class SiteOptions(msgspec.Struct, frozen=True):
    """What a site is made of. Without `database_url` it starts a PostgreSQL of its own."""

    folder: Path
    fleet: FleetPlan
    seed: int
    rate: float
    lease_seconds: float = LEASE_SECONDS
    database_url: str | None = None


class Site:
    """The processes and the database of a run, as faults see them (`stage.Stage`)."""

    def __init__(
        self,
        *,
        paths: RunPaths,
        history: RunHistory,
        database: Database,
        database_url: str,
        lease_seconds: float,
        run_id: str,
    ) -> None:
        self.paths = paths
        self.history = history
        self.database_url = database_url
        self.lease_seconds = lease_seconds
        self.database = database
        self.run_id = run_id
        self.postgres: StagedPostgres | None = None
        self.disk: StagedDisk | None = None
        self.master_keys: Sequence[Path] = ()
        self.proxies: Proxies
        # roles and kinds of faults that this run cannot have, and why
        self.left_out: dict[str, str] = {}
        self._processes: list[RunProcess] = []

    def processes(self, *roles: Role) -> Sequence[RunProcess]:
        """The processes of these roles that run now; all of them without roles."""
        return [one for one in self._processes if one.is_running() and (not roles or one.role in roles)]

    async def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run a query past the proxies; again if the connection is lost."""
        return await self.database.reach(lambda tx: tx.values(query, list(params) or None))

    async def restart(self, process: StagedProcess, environment: Mapping[str, str]) -> StagedProcess:
        """Kill a process, and start one in its place that also has these variables."""
        found = next(one for one in self._processes if one.name == process.name)
        await found.restart(environment)
        return found

    async def start_command(
        self, *arguments: str, environment: Mapping[str, str], module: str = "fairlead.cli"
    ) -> Process:
        """Start `fairlead` or a like module, on the database itself; its output is among the logs."""
        with (self.paths.logs / "commands.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                env=build_environment(
                    {
                        RUN_VARIABLE: self.run_id,
                        f"{PREFIX}DATABASE_URL": self.database_url,
                        **build_key_environment(self.master_keys),
                        **environment,
                    }
                ),
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                cwd=self.paths.folder,
                start_new_session=True,
            )

    async def start(self, fleet: FleetPlan, place: FleetPlace) -> None:
        """Start all processes, and wait until each works; clients last, when the servers answer."""
        for plan in plan_processes(fleet, place):
            self._processes.append(RunProcess(plan, self.paths.logs, self.history))
        clients = [one for one in self._processes if one.role == "client"]
        for some in ([one for one in self._processes if one not in clients], clients):
            for one in some:
                await one.start()
            await self._wait_for(some)

    async def bring_back(self) -> None:
        """Let everything run again after the faults, and wait until each process works."""
        if self.disk is not None:
            self.disk.free()
        if self.postgres is not None:
            if self.postgres.slow_disk is not None:
                self.postgres.slow_disk.delay(0)
            await self.postgres.start()
        for one in self.processes():
            one.signal(signal.SIGCONT)
        await self._wait_for(self._processes)

    async def stop(self, *roles: Role) -> None:
        """End the processes of these roles for good; all of them without roles."""
        await asyncio.gather(*(one.stop() for one in self._processes if not roles or one.role in roles))

    def find_orphans(self) -> dict[int, str]:
        """Processes of the run that descend from no process that the site watches, and their command lines."""
        return find_orphans(self.run_id, [one.pid for one in self.processes()])

    def kill(self) -> None:
        """End everything that is left of the run at once."""
        for one in self._processes:
            one.kill_group()
        kill_marked(self.run_id)

    async def _wait_for(self, processes: Sequence[RunProcess]) -> None:
        await asyncio.gather(*(one.wait_until_ready(READY_SECONDS) for one in processes))


@asynccontextmanager
async def open_site(options: SiteOptions) -> AsyncIterator[Site]:
    """Start PostgreSQL, install the scenario and start all processes; nothing is left at the end of the block."""
    paths = RunPaths(options.folder.resolve())
    paths.create()
    async with AsyncExitStack() as stack:
        history = RunHistory(paths.history)
        stack.callback(history.close)
        postgres, disk = None, None
        if options.database_url is None:
            postgres, disk = await _start_postgres(stack)
            url = postgres.url
        else:
            url = await stack.enter_async_context(
                scratch_database(options.database_url, f"fairlead_chaos_{uuid4().hex[:12]}")
            )
        master_keys = create_master_keys(paths.folder)
        settings = Settings(
            database_url=url,
            pool_size=4,
            connect_timeout_seconds=CONNECT_SECONDS,
            encryption_key=f"file:{master_keys[0]}",
        )
        await migrate.up(url, settings.schema)
        database = await stack.enter_async_context(Database(url, settings))
        site = Site(
            paths=paths,
            history=history,
            database=database,
            database_url=url,
            lease_seconds=options.lease_seconds,
            run_id=uuid4().hex,
        )
        site.postgres, site.disk, site.master_keys = postgres, disk, master_keys
        ports = find_free_ports(options.fleet.servers)
        site.proxies = Proxies(
            postgres=stack.enter_context(PostgresProxy(url)),
            http=[stack.enter_context(HttpProxy("127.0.0.1", port)) for port in ports],
        )
        place = await _install(site, options, ports, settings)
        stack.callback(site.kill)
        await site.start(options.fleet, place)
        yield site


async def _start_postgres(stack: AsyncExitStack) -> tuple[RunPostgres, StagedDisk | None]:
    """A PostgreSQL on a small disk of its own, or in a temporary folder if none can be mounted."""
    place = _make_open_folder(stack)
    disk: StagedDisk | None = None
    with suppress(DiskNotMounted):  # the fault says itself that it needs a disk
        disk = stack.enter_context(mount_disk(place))
    postgres = RunPostgres(place / "data")
    await postgres.start()
    stack.push_async_callback(postgres.stop)
    return postgres, disk


def _make_open_folder(stack: AsyncExitStack) -> Path:
    """A temporary folder that others may enter: as root the server runs as another user."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairlead-chaos-")))
    folder.chmod(0o711)
    place = folder / "disk"
    place.mkdir(mode=0o711)
    return place


async def _install(site: Site, options: SiteOptions, ports: Sequence[int], settings: Settings) -> FleetPlace:
    # their import reads the settings of this process, and `--help` must work with invalid ones
    from fairlead.chaos.load.handlers import fl  # noqa: PLC0415
    from fairlead.chaos.site.install import install_scenario, write_access  # noqa: PLC0415

    environment = {FOLDER_VARIABLE: str(site.paths.history), RUN_VARIABLE: site.run_id}
    secrets = create_secrets(site.paths.folder)
    config = write_commands(site.paths.folder, environment, secrets)
    servers = [proxy.url for proxy in site.proxies.http]
    agents = {f"agent-{n}": site.paths.agent(n) for n in range(1, options.fleet.agents + 1)}
    typescript = find_typescript_worker() if options.fleet.typescript_workers else None
    if options.fleet.typescript_workers and typescript is None:
        site.left_out["typescript_worker"] = "It needs Node 20 and the client that make typescript builds."
    fl.settings = settings
    fl.allow_commands(config)
    async with fl:
        access = await install_scenario(fl, servers=servers, agents=agents)
    unserved = _list_unserved(options.fleet, has_typescript=typescript is not None)
    access = replace(access, unserved=unserved, secrets=str(secrets))
    write_access(site.paths.access, access)
    return FleetPlace(
        paths=site.paths,
        run_id=site.run_id,
        database_url=site.proxies.postgres.url,
        config=config,
        master_keys=site.master_keys,
        ports=ports,
        servers=servers,
        worker_token=access.worker_token,
        typescript=typescript,
        seed=options.seed,
        rate=options.rate,
        lease_seconds=options.lease_seconds,
    )


def _list_unserved(fleet: FleetPlan, *, has_typescript: bool) -> list[str]:
    """The definitions that no process of this run serves."""
    is_served = {
        "python": True,
        "command": True,
        "http": fleet.http_workers > 0,
        "typescript": has_typescript,
        "agent": fleet.agents > 0,
    }
    return [plan.key for plan in DEFINITIONS if not is_served[plan.runner]]
