"""The processes of a run: what each of them runs, and the environment that it gets."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from fairlead.chaos.history import FOLDER_VARIABLE
from fairlead.chaos.scenario import LABEL, LABELED_WORKER, SETTINGS, WORKER_SLOTS, FleetPlan
from fairlead.chaos.site.access import ACCESS_VARIABLE, RUN_VARIABLE
from fairlead.chaos.site.labels import build_label_environment
from fairlead.chaos.site.master_keys import build_key_environment
from fairlead.chaos.site.processes import ProcessPlan
from fairlead.chaos.stage import Role
from fairlead.settings import PREFIX, TOKEN_VARIABLE

FAIRLEAD = (sys.executable, "-m", "fairlead.cli")
CLIENT = (sys.executable, "-m", "fairlead.chaos.load.client")
HOSTILE_CLIENT = (sys.executable, "-m", "fairlead.chaos.load.hostile")
APP = "fairlead.chaos.load.handlers:fl"
HTTP_APP = "fairlead.chaos.load.handlers:http_fl"
WORKER = ("worker", APP, "--concurrency", str(WORKER_SLOTS))
# What the processes print when they work.
READY: Mapping[Role, str] = {
    "worker": "; Ctrl-C stops",
    "http_worker": "over HTTP; Ctrl-C stops",
    "typescript_worker": "ready",
    "server": "serving http",
    "scheduler": "firing schedules",
    "agent": "; Ctrl-C stops",
    "client": "ready",
}
# Clients and HTTP workers send more requests than people do.
UNLIMITED = {"FAIRLEAD_RATE_LIMIT_PER_SECOND": "1000000", "FAIRLEAD_RATE_LIMIT_BURST": "1000000"}
# The seed of a client that takes another's place: the same calls again would be other jobs anyway.
SEED_STEP = 1000


class RunPaths(msgspec.Struct, frozen=True):
    """The files and folders of a run."""

    folder: Path

    @property
    def history(self) -> Path:
        return self.folder / "history"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def access(self) -> Path:
        return self.folder / "access.json"

    def agent(self, number: int) -> Path:
        """The state folder of an agent."""
        return self.folder / f"agent-{number}"

    def create(self) -> None:
        """Create the folders."""
        for folder in (self.folder, self.history, self.logs):
            folder.mkdir(parents=True, exist_ok=True)


class FleetPlace(msgspec.Struct, frozen=True):
    """What the processes must know of the site."""

    paths: RunPaths
    run_id: str
    database_url: str
    config: Path
    # for all that have the database
    master_keys: Sequence[Path]
    # the ports on which servers listen, and the URLs by which others reach them
    ports: Sequence[int]
    servers: Sequence[str]
    worker_token: str
    # the worker in TypeScript, if there can be one
    typescript: Sequence[str] | None
    seed: int
    # jobs per second of all clients together
    rate: float
    lease_seconds: float


def build_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment without settings of Fairlead, but the place of root's clusters, plus what is given."""
    ours = {name for name in os.environ if name.startswith(PREFIX)} - {f"{PREFIX}SYSTEM_DIR"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    return inherited | {"PYTHONUNBUFFERED": "1"} | dict(more)


def plan_processes(fleet: FleetPlan, place: FleetPlace) -> list[ProcessPlan]:
    """Every process of a run, servers first. Without Node there is no worker in TypeScript."""
    plans = [
        _plan(
            place,
            "server",
            n,
            ["serve", "--port", str(place.ports[n - 1])],
            {**UNLIMITED, **_database(place)},
        )
        for n in _count(fleet.servers)
    ]
    plans += [_plan(place, "scheduler", n, ["scheduler"], _database(place)) for n in _count(fleet.schedulers)]
    plans += [
        _plan(
            place,
            "worker",
            n,
            WORKER,
            {**_database(place), **_label(_name("worker", n))},
        )
        for n in _count(fleet.workers)
    ]
    plans += [
        _plan(
            place,
            "http_worker",
            n,
            ["worker", HTTP_APP, "--server", _pick_server(place, n)],
            {TOKEN_VARIABLE: place.worker_token},
        )
        for n in _count(fleet.http_workers)
    ]
    plans += [
        _plan(place, "agent", n, ["agent", "--state-dir", str(place.paths.agent(n))], {})
        for n in _count(fleet.agents)
    ]
    return [*plans, *_plan_typescript(fleet, place), *_plan_clients(fleet, place)]


def _label(name: str) -> dict[str, str]:
    """The label of the worker that runs every job of the load; the others run all but some."""
    return build_label_environment(LABEL) if name == LABELED_WORKER else {}


def _count(number: int) -> range:
    return range(1, number + 1)


def _pick_server(place: FleetPlace, number: int) -> str:
    return place.servers[number % len(place.servers)]


def _database(place: FleetPlace) -> dict[str, str]:
    return {f"{PREFIX}DATABASE_URL": place.database_url, **build_key_environment(place.master_keys)}


def _plan(
    place: FleetPlace, role: Role, number: int, arguments: Sequence[str], more: Mapping[str, str]
) -> ProcessPlan:
    argv = [*FAIRLEAD, *arguments]
    return _plan_program(place, role, _name(role, number), lambda _: argv, more)


def _name(role: Role, number: int) -> str:
    return f"{role.replace('_', '-')}-{number}"


def _plan_program(
    place: FleetPlace, role: Role, name: str, argv: Callable[[int], list[str]], more: Mapping[str, str]
) -> ProcessPlan:
    environment = {
        **SETTINGS,
        f"{PREFIX}LEASE_SECONDS": f"{place.lease_seconds:g}",
        FOLDER_VARIABLE: str(place.paths.history),
        ACCESS_VARIABLE: str(place.paths.access),
        RUN_VARIABLE: place.run_id,
        f"{PREFIX}CONFIG": str(place.config),
    }
    return ProcessPlan(
        name=name,
        role=role,
        argv=argv,
        environment=build_environment({**environment, **more}),
        ready=READY[role],
    )


def _plan_typescript(fleet: FleetPlan, place: FleetPlace) -> list[ProcessPlan]:
    if place.typescript is None:
        return []
    argv = list(place.typescript)
    return [
        _plan_program(
            place,
            "typescript_worker",
            _name("typescript_worker", n),
            lambda _: argv,
            {f"{PREFIX}URL": _pick_server(place, n), TOKEN_VARIABLE: place.worker_token},
        )
        for n in _count(fleet.typescript_workers)
    ]


def _plan_clients(fleet: FleetPlan, place: FleetPlace) -> list[ProcessPlan]:
    def build_argv(number: int, starts: int) -> list[str]:
        seed = place.seed + number + starts * SEED_STEP
        rate = place.rate / fleet.clients
        return [*CLIENT, "--number", str(number), "--seed", str(seed), "--rate", f"{rate:g}"]

    def build_hostile_argv(number: int, starts: int) -> list[str]:
        return [*HOSTILE_CLIENT, "--seed", str(place.seed + number + starts * SEED_STEP)]

    return [
        *(
            _plan_program(place, "client", f"client-{n}", partial(build_argv, n), _database(place))
            for n in _count(fleet.clients)
        ),
        *(
            _plan_program(place, "client", f"hostile-client-{n}", partial(build_hostile_argv, n), {})
            for n in _count(fleet.hostile_clients)
        ),
    ]
