"""A single connection outside the pool, to the primary: for migrations and for questions to a Citus coordinator."""

from typing import Any

import psycopg
from psycopg import AsyncConnection

from fairlead.db.addresses import check_address, primary_parameters
from fairlead.db.database_errors import unreachable_error
from fairlead.db.server_version import require_supported
from fairlead.errors import DatabaseRefused

CONNECT_SECONDS = 30.0


async def connect_directly(url: str, *, name: str, seconds: float = CONNECT_SECONDS) -> AsyncConnection[Any]:
    """Connect, or raise DatabaseUnreachable, or DatabaseRefused if the server is too old.

    `name` is shown as the connection's application.
    """
    check_address(url)
    try:
        connection = await AsyncConnection.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            application_name=name,
            **primary_parameters(url, seconds=seconds),
        )
    except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
        raise unreachable_error(url, error) from error
    try:
        require_supported(connection.info.server_version)
    except DatabaseRefused:
        await connection.close()
        raise
    return connection
