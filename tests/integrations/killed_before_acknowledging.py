"""A process that runs the sources of fairlead.toml and is killed after its first commit, before it acknowledges."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fairlead import Fairlead
from fairlead.integrations.source import ConnectSource, read_sources
from fairlead.model.event_source import SourceMessage
from fairlead.runtime.event_sources import run_sources
from fairlead.settings import config_file, load


def killed(connect: ConnectSource) -> ConnectSource:
    @asynccontextmanager
    async def connect_and_die() -> AsyncIterator[Any]:
        async with connect() as source:

            async def die(messages: Sequence[SourceMessage]) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            source.acknowledge = die  # type: ignore[method-assign]
            yield source

    return connect_and_die


async def main() -> None:
    found = [one._replace(connect=killed(one.connect)) for one in read_sources(config_file())]
    async with Fairlead(settings=load({})) as fl:
        await run_sources(fl.database, fl.catalog, found, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main())
