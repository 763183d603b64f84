"""Jobs that end in a transaction of their handler, which also writes a row: the row is there exactly if the job succeeded."""

import asyncio
from collections.abc import Callable

from fairlead.chaos.history import EndRecord, now
from fairlead.db.tx import Tx
from fairlead.handlers.context import Context

_CREATE = "create table public.chaos_commits (job_id uuid not null, attempt_no integer not null)"
_INSERT = "insert into public.chaos_commits (job_id, attempt_no) values (%s, %s)"


async def create_commits_table(tx: Tx) -> None:
    """Create the handlers' own table."""
    await tx.run(_CREATE)


async def commit_attempt(
    ctx: Context, seconds: float, output: dict[str, int] | None, write: Callable[[EndRecord], None]
) -> None:
    """Write the row of this attempt, after some time; its job ends with the transaction, with this output or without any."""
    async with ctx.tx() as connection:
        await connection.execute(_INSERT, [ctx.job_id, ctx.attempt_no])
        await asyncio.sleep(seconds)
        if output is not None:
            await ctx.succeed(output, tx=connection)
        # before the commit: a process that is killed right after it can say nothing more
        write(EndRecord(now(), ctx.job_id, ctx.attempt_no, "succeeded"))
