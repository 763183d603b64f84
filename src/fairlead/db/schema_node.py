"""The node of a Citus cluster that holds our schema, as the connections of a process follow it."""

import psycopg
import structlog

from fairlead.db.addresses import describe_address
from fairlead.db.citus import HOLD, HOLD_SNAPSHOT, MOVED, find_node, open_shards
from fairlead.db.connection import Connection
from fairlead.db.database_errors import SchemaMoved, first_line
from fairlead.db.sharded_tables import ShardedTables
from fairlead.db.sql import in_schema
from fairlead.errors import DatabaseUnreachable, SchemaOutdated

log = structlog.get_logger(__name__)


class SchemaNode:
    """Finds the node for each new connection, and lets a transaction begin only on the node that holds the schema."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema
        self._node: str | None = None
        self.hold_statement = in_schema(HOLD, schema)
        self.hold_snapshot_statement = in_schema(HOLD_SNAPSHOT, schema)

    async def read_shards(self) -> ShardedTables:
        """The names of the schema's shards."""
        return await open_shards(self._url, self._schema)

    async def find(self) -> str:
        """The URL for a new connection. Without the coordinator, it is the node of the last connection."""
        try:
            node = await find_node(self._url, self._schema)
        except DatabaseUnreachable as error:
            if self._node is None:
                raise
            log.warning("coordinator_unreachable", why=str(error))
            return self._node
        if self._node not in (None, node):
            log.info("schema_moved", schema=self._schema, node=describe_address(node))
        self._node = node
        return node

    @property
    def address(self) -> str:
        """Where the schema was last found."""
        return describe_address(self._node or self._url)

    async def hold(self, connection: Connection, *, snapshot: bool = False) -> None:
        """Keep Citus from moving the schema until the transaction ends; SchemaMoved if another node holds it.

        In a transaction with a `snapshot` it only takes the lock, and the caller holds the schema in another one to check.
        """
        statement = self.hold_snapshot_statement if snapshot else self.hold_statement
        try:
            await connection.execute(statement.encode())
        except psycopg.errors.UndefinedFunction as error:
            raise SchemaOutdated(
                f"The schema {self._schema!r} lacks stored functions: {first_line(error)}. Run: fairlead migrate up"
            ) from error
        except psycopg.Error as error:
            raise self.translate(error) from error

    def translate(self, error: psycopg.Error) -> psycopg.Error:
        """SchemaMoved for the error of a statement on the wrong node; any other error as it is."""
        return SchemaMoved(str(error)) if error.sqlstate == MOVED else error
