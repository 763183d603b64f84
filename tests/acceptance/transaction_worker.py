"""A worker whose handlers end their jobs in transactions, in four ways. It says each change, and kills itself where it is told."""

import asyncio
import os
import random
import signal
import sys
import time
from typing import Any

import psycopg

from fairlead import Context, Fairlead
from fairlead.runtime.joined_ends import AttemptEnds

CHANGE = "insert into public.effects (job_id) values (%s)"
URL = os.environ["FAIRLEAD_DATABASE_URL"]
LONGEST_SECONDS = 0.004

fl = Fairlead()


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def take_a_moment() -> float:
    """Seconds between a change and the end of its job."""
    return random.uniform(0, LONGEST_SECONDS)  # noqa: S311


def die_at(point: str) -> None:
    """Die here if this is the point at which this process has to die."""
    if os.environ.get("DIE_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)


def die_after_confirming() -> None:
    """Die between the end of a lent transaction and its commit."""
    confirm, confirm_in_thread = AttemptEnds.confirm, AttemptEnds.confirm_in_thread

    async def confirm_and_die(self: AttemptEnds, tx: Any) -> None:
        await confirm(self, tx)
        die_at("written")

    def confirm_in_thread_and_die(self: AttemptEnds, tx: Any) -> None:
        confirm_in_thread(self, tx)
        die_at("written")

    AttemptEnds.confirm = confirm_and_die  # type: ignore[method-assign]
    AttemptEnds.confirm_in_thread = confirm_in_thread_and_die  # type: ignore[method-assign]


@fl.job
async def lent(ctx: Context) -> str:
    async with ctx.tx() as connection:
        await connection.execute(CHANGE, [ctx.job_id])
        say("changed")
        die_at("changed")
        await asyncio.sleep(take_a_moment())
    die_at("committed")
    return "ignored"


@fl.job
def lent_in_thread(ctx: Context) -> str:
    with ctx.tx() as connection:
        connection.execute(CHANGE, [ctx.job_id])
        say("changed")
        die_at("changed")
        time.sleep(take_a_moment())
    die_at("committed")
    return "ignored"


@fl.job
async def own(ctx: Context) -> None:
    async with await psycopg.AsyncConnection.connect(URL) as connection:
        await connection.execute(CHANGE, [ctx.job_id])
        say("changed")
        die_at("changed")
        await ctx.succeed("own", tx=connection)
        die_at("written")
        await asyncio.sleep(take_a_moment())
    die_at("committed")


@fl.job
def own_in_thread(ctx: Context) -> None:
    with psycopg.connect(URL) as connection:
        connection.execute(CHANGE, [ctx.job_id])
        say("changed")
        die_at("changed")
        ctx.succeed("own", tx=connection)
        die_at("written")
        time.sleep(take_a_moment())
    die_at("committed")


async def work() -> None:
    async with fl:
        say("open")
        await fl.work(asyncio.Event(), concurrency=8)


if __name__ == "__main__":
    die_after_confirming()
    asyncio.run(work())
