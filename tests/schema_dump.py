"""What the migrations make, as pg_dump tells it. `make schema` writes it to tests/db/schema.sql."""

import asyncio
import re
import subprocess
import tempfile
from pathlib import Path

from psycopg import AsyncConnection

from fairlead.db import migrate
from fairlead.db.embedded import EmbeddedPostgres, find_binaries
from fairlead.db.scratch import scratch_database

COMMITTED = Path(__file__).parent / "db" / "schema.sql"
_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.MULTILINE)


async def dumped(server: str) -> str:
    """The schema that the migrations make on that server, without the days of the audit log."""
    async with scratch_database(server, "schema_dump") as url:
        await migrate.up(url, "fairlead")
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            await _drop_days(connection)
        return await asyncio.to_thread(_pg_dump, url)


async def _drop_days(connection: AsyncConnection[tuple[str, ...]]) -> None:
    cursor = await connection.execute(
        "select inhrelid::regclass::text from pg_inherits "
        "where inhparent = 'fairlead.audit_log'::regclass and inhrelid::regclass::text ~ '_[0-9]{8}$'"
    )
    for (day,) in await cursor.fetchall():
        await connection.execute(f"drop table {day}".encode())


def _pg_dump(url: str) -> str:
    pg_dump = str(find_binaries().bin / "pg_dump")
    argv = [pg_dump, "--schema-only", "--schema=fairlead", "--no-owner", "--no-tablespaces", url]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return re.sub(r"\n{2,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def main() -> None:
    """Write the dump where it is committed."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder)) as server:
        COMMITTED.write_text(
            "-- What the migrations make (make schema). For reading and diffing; never run.\n\n"
            + asyncio.run(dumped(server.url)),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
