"""Citus: which node of a cluster holds a distributed schema, and the names of the schema's shards there.

Our processes connect to the node that holds the schema, since notifications and advisory locks stay within a node.
They read and write the schema's shards by name, because the distributed planner refuses much of our SQL: volatile
functions in UPDATE, INSERT in a WITH clause, functions in RETURNING. Citus may move the schema to another node at any
time and keeps the old shards for a while, so each transaction first calls `hold_placement`: it takes the lock that
Citus takes for its own writes, and fails with MOVED if the schema is no longer on this node.
"""

import re
from typing import Any

import psycopg
from psycopg import AsyncConnection, conninfo

from fairlead.db.direct_connection import connect_directly
from fairlead.db.sharded_tables import ShardedTables
from fairlead.db.sql import SCHEMA
from fairlead.errors import DatabaseRefused, DatabaseUnreachable

# The node is asked for before each new connection, so the answer must not take long.
ASK_SECONDS = 10.0
# The SQLSTATE of functions/hold_placement.sql.
MOVED = "FL002"
HOLD = "select fairlead.hold_placement()"
HOLD_SNAPSHOT = "select fairlead.hold_placement(is_checked_elsewhere => true)"
# Citus hides shards from a session's queries of the catalogs.
SHOW_SHARDS = "select set_config('citus.override_table_visibility', 'off', true)"

_NODE = """
select n.nodename, n.nodeport
from pg_catalog.pg_dist_schema s
join pg_catalog.pg_dist_partition t on t.colocationid = s.colocationid
join pg_catalog.pg_dist_shard h on h.logicalrelid = t.logicalrelid
join pg_catalog.pg_dist_placement p on p.shardid = h.shardid
join pg_catalog.pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary'
where s.schemaid = (select oid from pg_catalog.pg_namespace where nspname = %s)
limit 1
"""

_SHARDS = """
select c.relname, c.relname || '_' || h.shardid
from pg_catalog.pg_dist_shard h join pg_catalog.pg_class c on c.oid = h.logicalrelid
where c.relnamespace = (select oid from pg_catalog.pg_namespace where nspname = %s)
"""

_VIEWS = """
select c.relname, pg_catalog.pg_get_viewdef(c.oid)
from pg_catalog.pg_class c
where c.relkind = 'v' and c.relnamespace = (select oid from pg_catalog.pg_namespace where nspname = %s)
"""

_IS_DISTRIBUTED = """
select exists (
    select from pg_catalog.pg_dist_schema
    where schemaid = (select oid from pg_catalog.pg_namespace where nspname = %s))
"""


async def find_node(url: str, schema: str) -> str:
    """The URL of the node that holds a distributed schema; `url` is that of any node, usually the coordinator.

    Only host and port differ from `url`.
    """
    async with await _ask(url) as connection:
        host, port = await _read_node(connection, schema)
    return replace_node(url, host, port)


async def open_shards(url: str, schema: str) -> ShardedTables:
    """The names of a distributed schema's shards, read from the coordinator."""
    async with await _ask(url) as connection:
        return await read_shards(connection, schema)


def replace_node(url: str, host: str, port: int) -> str:
    """The same URL with the host and port of another node."""
    parts: dict[str, Any] = conninfo.conninfo_to_dict(url)
    parts.pop("hostaddr", None)  # it would win over the host
    return conninfo.make_conninfo(**parts | {"host": host, "port": port})


async def read_shards(connection: AsyncConnection[Any], schema: str) -> ShardedTables:
    """The names of a distributed schema's shards. They stay the same when Citus moves the schema."""
    cursor = await connection.execute(_SHARDS, (schema,))
    shards = dict(await cursor.fetchall())
    cursor = await connection.execute(_VIEWS, (schema,))
    views = {name: _unqualify(query, schema) for name, query in await cursor.fetchall()}
    return ShardedTables(shards, views)


def _unqualify(query: str, schema: str) -> str:
    """A view's query as our own statements are written: with `fairlead` for the schema, and a literal % doubled."""
    return re.sub(rf"\b{schema}\.", f"{SCHEMA}.", query.strip().removesuffix(";")).replace("%", "%%")


async def prepare_session(connection: AsyncConnection[Any], schema: str) -> None:
    """Let this session create the schema as a distributed one."""
    try:
        await connection.execute("set citus.enable_schema_based_sharding = on")
        cursor = await connection.execute("select pg_catalog.citus_is_coordinator()")
    except psycopg.errors.UndefinedFunction as error:
        raise DatabaseRefused(
            "This database has no Citus. On every node, set shared_preload_libraries = 'citus' and run: "
            "CREATE EXTENSION citus"
        ) from error
    if await cursor.fetchone() != (True,):
        raise DatabaseRefused(
            f"Only the coordinator of a Citus cluster changes tables: give its address for the schema {schema!r}."
        )


async def require_distributed(connection: AsyncConnection[Any], schema: str) -> None:
    """Refuse a schema that Citus does not distribute."""
    cursor = await connection.execute(_IS_DISTRIBUTED, (schema,))
    if await cursor.fetchone() != (True,):
        raise DatabaseRefused(
            f"The schema {schema!r} exists, and Citus does not distribute it. Choose another schema "
            "(FAIRLEAD_SCHEMA): Fairlead creates it."
        )


async def _read_node(connection: AsyncConnection[Any], schema: str) -> tuple[str, int]:
    try:
        cursor = await connection.execute(_NODE, (schema,))
        row = await cursor.fetchone()
    except psycopg.errors.UndefinedTable as error:
        raise DatabaseRefused(
            "This database has no Citus. Use a cell without Citus, or run on every node: CREATE EXTENSION citus"
        ) from error
    if row is None:
        raise DatabaseUnreachable(
            f"The Citus cluster has no distributed schema {schema!r}. Create it with: fairlead migrate up"
        )
    return str(row[0]), int(row[1])


async def _ask(url: str) -> AsyncConnection[Any]:
    """A connection to the coordinator."""
    return await connect_directly(url, name="fairlead citus", seconds=ASK_SECONDS)
