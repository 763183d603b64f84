"""One bridge process: engines that deliver jobs, and the leases of everything that they carry."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from fairlead.db.database import Database
from fairlead.db.listen import POLL, Listener
from fairlead.errors import FairleadError
from fairlead.integrations.configuration import ConnectionTable, load_driver, read_options
from fairlead.integrations.engine import DRIVERS
from fairlead.runtime.engine_bridge import EngineBridge, EngineTerms
from fairlead.runtime.maintenance import Maintenance
from fairlead.runtime.service import Service, run_services
from fairlead.runtime.store_source import new_worker_id
from fairlead.settings import Settings
from fairlead.store import handovers, workers

log = structlog.get_logger(__name__)

# How often a bridge looks for new and changed definitions.
DEFINITIONS_SECONDS = 2.0
DEFAULT_IN_FLIGHT = 100
MAX_IN_FLIGHT = "max_in_flight"
MOST_IN_FLIGHT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgePlan:
    """The configuration of one bridge process."""

    url: str = field(repr=False)  # a password may be in it
    settings: Settings
    engines: Sequence[EngineTerms]
    version: str


def read_terms(tables: Mapping[str, ConnectionTable]) -> list[EngineTerms]:
    """How the bridge serves each engine of fairlead.toml; raises SettingInvalid if a table cannot be used."""
    return [_read_terms(table) for table in tables.values()]


def _read_terms(table: ConnectionTable) -> EngineTerms:
    options: dict[str, Any] = dict(table.options)
    most = options.pop(MAX_IN_FLIGHT, DEFAULT_IN_FLIGHT)
    if type(most) is not int or not 1 <= most <= MOST_IN_FLIGHT:
        raise table.refuse(MAX_IN_FLIGHT, f"must be 1 to {MOST_IN_FLIGHT}")
    driver = load_driver(table, DRIVERS)
    own = table._replace(options=options)
    read_options(own, driver.OPTIONS)  # refused here, before anything is delivered
    return EngineTerms(table.name, partial(driver.connect, own), most)


class Bridge:
    """Runs until `stop` is set. What the engines carry goes on, and the next bridge takes it over."""

    def __init__(self, plan: BridgePlan) -> None:
        self._plan = plan
        self.bridge_id = f"bridge:{new_worker_id()}"
        self._names = [one.name for one in plan.engines]
        self._keys: list[str] = []
        self._engines: list[EngineBridge] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Serve all engines until `stop` is set."""
        plan = self._plan
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(Database(plan.url, plan.settings))
            self._engines = [EngineBridge(database, one, bridge_id=self.bridge_id) for one in plan.engines]
            maintenance = Maintenance(database)
            await stack.enter_async_context(self._listen(maintenance))
            services = (
                Service("definitions", partial(self._find_definitions, database)),
                Service("leases", partial(self._renew, database)),
                Service("registration", partial(self._register, database)),
                *maintenance.services,
            )
            async with run_services(*services, stop=stop):
                await asyncio.gather(*(one.run(stop) for one in self._engines))
            with suppress(FairleadError):
                await database.single(lambda tx: workers.remove(tx, self.bridge_id))

    @asynccontextmanager
    async def _listen(self, maintenance: Maintenance) -> AsyncIterator[None]:
        """Wake the loops at notifications, during the block."""

        def hear(payload: str) -> None:
            if payload in ("ready", "gate", POLL):
                for one in self._engines:
                    one.wake()
            if payload in ("later", POLL):
                maintenance.stager.wake()
            if payload in ("step", POLL):
                maintenance.steps.wake()
            if payload in ("cancel", POLL):
                for one in self._engines:
                    one.look()

        settings = self._plan.settings
        async with Listener(
            settings.direct_url or self._plan.url, settings.schema, citus=settings.citus
        ) as listener:
            with listener.subscribe(hear):
                yield

    async def _find_definitions(self, database: Database) -> float:
        """Find the definitions of these engines; seconds until the next search."""
        found = await database.single(partial(handovers.list_definitions, engines=self._names))
        self._keys = [one.key for one in found]
        for engine in self._engines:
            engine.set_definitions(found)
        return DEFINITIONS_SECONDS

    async def _renew(self, database: Database) -> float:
        """Renew the leases of everything that these engines carry; seconds until the next time."""
        seconds = self._plan.settings.bridge_lease_seconds
        await database.single(partial(handovers.renew, engines=self._names, lease_seconds=seconds))
        return seconds / 3

    async def _register(self, database: Database) -> float:
        """Record that the bridge is there, and learn whether it must drain; seconds until the next time."""
        plan = self._plan
        if not self._keys:  # a worker without keys would count as one that serves every definition
            return DEFINITIONS_SECONDS
        carried = [await database.single(partial(handovers.count, engine=one)) for one in self._names]
        draining = await database.single(
            lambda tx: workers.register(
                tx,
                worker_id=self.bridge_id,
                hostname=socket.gethostname(),
                version=plan.version,
                keys=self._keys,
                running=sum(carried),
                concurrency=sum(one.max_in_flight for one in plan.engines),
                draining=False,
            )
        )
        for one in self._engines:
            one.is_draining = draining
        return min(plan.settings.lease_seconds / 3, DEFINITIONS_SECONDS)
