"""A client of a run: `python -m fairlead.chaos.load.client --number 1 --seed 7 --rate 40`.

It calls at a steady rate, by choices of its seed, whatever becomes of the calls, until SIGTERM.
"""

import argparse
import asyncio
import random
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import structlog

from fairlead.chaos import scenario
from fairlead.chaos.history import HistoryWriter
from fairlead.chaos.load import change_calls, durable_calls, enqueue_calls, secret_calls
from fairlead.chaos.load.client_calls import CALL_SECONDS, ClientSession
from fairlead.chaos.load.order_calls import OrderCalls, OrderConnection
from fairlead.chaos.site.access import read_access
from fairlead.errors import FairleadError
from fairlead.library.app import Fairlead
from fairlead.settings import load

log = structlog.get_logger(__name__)

# The most calls of a client that may wait for an answer at the same time.
CALLS_AT_ONCE = 24
# After an outage a client makes up for at most this much time.
CATCH_UP_SECONDS = 10.0
# How long calls may go on after SIGTERM before they are given up as unknown.
STOP_SECONDS = 5.0
POOL_SIZE = 6
CONNECT_SECONDS = 10.0
REOPEN_SECONDS = 0.5

# Makes one call, or some that belong together.
Call = Callable[[ClientSession, str], Coroutine[Any, Any, None]]


class CallShare(NamedTuple):
    """How many calls of a kind there are to others, and how many jobs each of them makes on average."""

    call: Call
    share: int
    jobs: float


def list_calls(orders: OrderCalls) -> list[CallShare]:
    """The calls of a client."""
    return [
        CallShare(enqueue_calls.enqueue_one, 266, 1),
        CallShare(enqueue_calls.enqueue_bulk, 65, 125),
        CallShare(enqueue_calls.enqueue_refused, 15, 0),
        CallShare(enqueue_calls.enqueue_deduplicated, 130, 1),
        CallShare(enqueue_calls.enqueue_delayed, 75, 1),
        CallShare(enqueue_calls.enqueue_unique, 60, 0.5),
        CallShare(enqueue_calls.enqueue_debounced, 100, 0.5),
        CallShare(enqueue_calls.enqueue_expiring, 75, 1),
        CallShare(enqueue_calls.enqueue_idempotent, 65, 1.7),
        CallShare(enqueue_calls.enqueue_flood, 2, 110),
        CallShare(orders.place_order, 130, 1.7),
        CallShare(change_calls.emit, 115, 1),
        CallShare(change_calls.run_workflow, 17, 12),
        CallShare(change_calls.backfill, 10, 0.5),
        CallShare(change_calls.edit, 40, 1),
        CallShare(change_calls.cancel, 80, 0),
        CallShare(change_calls.retry, 40, 0),
        CallShare(secret_calls.change_secret, 80, 0),
        CallShare(durable_calls.start_functions, 120, 3.2),
    ]


class ChaosClient:
    """Calls from a seed, at a steady rate."""

    def __init__(self, session: ClientSession, calls: Sequence[CallShare], rate: float) -> None:
        self._session = session
        self._calls = [one.call for one in calls]
        self._shares = [one.share for one in calls]
        jobs = sum(one.share * one.jobs for one in calls) / sum(self._shares)
        # seconds between two calls
        self._pause = jobs / rate
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Call until `stop` is set; then wait for the calls that are under way, and give up the others."""
        free = asyncio.Semaphore(CALLS_AT_ONCE)
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not stop.is_set():
            await free.acquire()
            [call] = self._session.chance.choices(self._calls, self._shares)
            tenant = self._session.chance.choice(scenario.TENANTS)
            task = asyncio.create_task(call(self._session, tenant))
            self._running.add(task)
            task.add_done_callback(partial(self._handle_end, free))
            due = max(due, loop.time() - CATCH_UP_SECONDS) + self._pause
            await _wait(stop, due - loop.time())
        await self._end()

    def _handle_end(self, free: asyncio.Semaphore, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        free.release()
        if not task.cancelled() and (error := task.exception()):
            log.error("call_failed", error=repr(error))

    async def _end(self) -> None:
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=STOP_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stop` is set."""
    if seconds <= 0:
        return
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


async def run_client(number: int, seed: int, rate: float, stop: asyncio.Event) -> None:
    """Connect, whatever it takes, and call until `stop` is set."""
    name = f"chaos-client-{number}"
    settings = replace(load(), pool_size=POOL_SIZE, connect_timeout_seconds=CONNECT_SECONDS)
    fl = Fairlead(settings=settings, actor=name)
    connection = OrderConnection(settings.database_url or "", name)
    if not await _open(fl, stop):
        return
    history = HistoryWriter.of_process(f"client-{number}")
    session = ClientSession(fl, read_access(), history, random.Random(seed))  # noqa: S311
    try:
        print("ready", flush=True)  # noqa: T201 - the site waits for it
        client = ChaosClient(session, list_calls(OrderCalls(session, connection)), rate)
        await client.run(stop)
    finally:
        await session.close()
        await connection.close()
        async with asyncio.timeout(CALL_SECONDS):
            await fl.close()


async def _open(fl: Fairlead, stop: asyncio.Event) -> bool:
    """Open the way to the database; False if the client was stopped before."""
    while not stop.is_set():
        try:
            await fl.open()
        except FairleadError as error:
            log.warning("not_connected", why=str(error))
            await _wait(stop, REOPEN_SECONDS)
        else:
            return True
    return False


async def _main(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run_client(arguments.number, arguments.seed, arguments.rate, stop)


def main() -> None:
    parser = argparse.ArgumentParser(description="A client of fairlead chaos.")
    parser.add_argument(
        "--number", type=int, required=True, help="The client's number among those of the run."
    )
    parser.add_argument("--seed", type=int, required=True, help="Decides its calls.")
    parser.add_argument("--rate", type=float, required=True, help="How many jobs a second it enqueues.")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
