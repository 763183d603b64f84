"""Whether a pooler in transaction mode is between this process and PostgreSQL."""

import asyncio

from fairlead.db.direct_connection import connect_directly

ROUNDS = 10
SECONDS = 5.0
SERVER_PROCESS = "select pg_backend_pid()"


async def changes_connections(url: str) -> bool:
    """Whether the transactions of one connection run in several server processes, or two connections share one."""
    try:
        async with (
            asyncio.timeout(SECONDS),
            await connect_directly(url, name="fairlead-doctor") as first,
            await connect_directly(url, name="fairlead-doctor") as second,
        ):
            processes: set[tuple[int, object]] = set()
            for _ in range(ROUNDS):
                for number, connection in enumerate((first, second)):
                    cursor = await connection.execute(SERVER_PROCESS)
                    [process] = await cursor.fetchone() or (None,)
                    processes.add((number, process))
    except TimeoutError:
        return False  # a pooler in session mode that has no second connection to give
    return len({process for _, process in processes}) != 2 or len(processes) != 2
