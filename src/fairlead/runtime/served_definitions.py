"""Which definitions a worker serves: those of its functions, and those of its commands once they are published."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from uuid import UUID

import structlog

from fairlead.actions import definitions
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.access import Principal
from fairlead.model.definition import Definition, Kind
from fairlead.runtime.service import Service, run_services

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
IDLE_SECONDS = 3600.0


class ServedDefinitions:
    """The definitions that this worker runs. Both lists change in place while it runs, as definitions are published."""

    def __init__(self, functions: Collection[str], commands: Collection[str]) -> None:
        self.ids: list[UUID] = []
        self.keys: list[str] = sorted([*functions, *commands])
        self._all_keys = list(self.keys)
        self._commands = sorted(commands)
        self._warned: set[str] = set()

    async def look(self, database: Database, principal: Principal) -> float:
        """Find the definitions; seconds until the next search."""

        async def by_keys(tx: Tx) -> dict[str, Definition]:
            return await definitions.get_by_keys(tx, principal, self._all_keys)

        found = await database.transact(by_keys)
        missing = [key for key in self._commands if not self._is_command(key, found.get(key))]
        found = {key: one for key, one in found.items() if key not in missing}
        self.ids[:] = [one.id for one in found.values()]
        # a worker without keys would count as one that serves every definition
        self.keys[:] = sorted(found) or self._all_keys
        return LOOK_SECONDS if missing else IDLE_SECONDS

    @asynccontextmanager
    async def keep_searching(self, database: Database, principal: Principal) -> AsyncIterator[None]:
        """During the block, search for the definitions of commands that have none yet."""
        if not self._commands:
            yield
            return
        service = Service("served", lambda: self.look(database, principal))
        async with run_services(service):
            yield

    def _is_command(self, key: str, definition: Definition | None) -> bool:
        """Whether the definition is of kind command; logs a warning once if not."""
        if definition is not None and definition.kind is Kind.COMMAND:
            return True
        if key not in self._warned:
            self._warned.add(key)
            if definition is None:
                log.warning("command_without_definition", key=key, advice="run: fairlead definitions sync")
            else:
                log.warning("command_of_another_kind", key=key, kind=definition.kind.value)
        return False
