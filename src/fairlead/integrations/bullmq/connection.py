"""Opens BullMQ as a table of fairlead.toml describes it: its URL says whether on Redis or on PostgreSQL."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import inf
from urllib.parse import urlsplit

import msgspec
import structlog

from fairlead.errors import EngineUnavailable
from fairlead.integrations.bullmq.engine import BullmqEngine
from fairlead.integrations.bullmq.queues import Queues
from fairlead.integrations.configuration import ConnectionTable, read_options

log = structlog.get_logger(__name__)

REDIS = ("redis", "rediss", "unix")
POSTGRES = ("postgres", "postgresql")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}")


class BullmqOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The options of a table with the driver bullmq."""

    url: str
    # on Redis: what the keys begin with
    prefix: str = "bull"
    # on PostgreSQL: the schema of BullMQ's tables
    schema: str = "bullmq"


def open_queues(table: ConnectionTable) -> AbstractAsyncContextManager[Queues]:
    """BullMQ's queues."""
    options = read_options(table, BullmqOptions)
    scheme = urlsplit(options.url).scheme
    if scheme in REDIS:
        # redis-py is not needed on PostgreSQL, nor psycopg on Redis
        from fairlead.integrations.bullmq.redis_queues import open_redis_queues  # noqa: PLC0415

        return open_redis_queues(options.url, options.prefix)
    if scheme in POSTGRES:
        from fairlead.integrations.bullmq.postgres_queues import open_postgres_queues  # noqa: PLC0415

        if not _SCHEMA.fullmatch(options.schema):
            raise table.refuse("schema", "must be a name of letters, digits and underscores")
        return open_postgres_queues(options.url, options.schema)
    raise table.refuse("url", "must begin with redis://, rediss://, unix:// or postgresql://")


@asynccontextmanager
async def connect(table: ConnectionTable) -> AsyncIterator[BullmqEngine]:
    """Open BullMQ as a delivery engine."""
    async with open_queues(table) as queues:
        engine = BullmqEngine(queues)
        sweeping = asyncio.create_task(engine.sweep(), name="bullmq-sweep")
        try:
            yield engine
        finally:
            sweeping.cancel()
            await asyncio.wait((sweeping,))
            try:
                await engine.remove_stored(before=inf)
            except EngineUnavailable as error:
                # BullMQ removes them after their age
                log.info("finished_jobs_kept", engine=table.name, why=error.message)
