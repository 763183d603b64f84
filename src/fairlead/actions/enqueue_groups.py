"""Plain enqueues of many concurrent tasks of one process, stored together.

Each statement costs the server a fixed time and a commit. While MOST_STATEMENTS are under way, further plain enqueues
wait for the first of these to end, and one statement then stores them all. A process with few concurrent enqueues sends
each at once, and one with many needs fewer statements, connections and commits.
"""

import asyncio
from contextvars import Context
from itertools import count
from typing import NamedTuple
from uuid import UUID

from fairlead import tracing
from fairlead.actions import enqueue
from fairlead.actions.catalog import UNKNOWN, Catalog
from fairlead.db.database import Database
from fairlead.db.tx import REJECTED, Tx
from fairlead.model.access import Principal
from fairlead.model.job import EnqueueResult, NewJob
from fairlead.store import jobs

MOST_STATEMENTS = 8
MOST_JOBS = 200
MOST_BYTES = 1_048_576


class _Answer(NamedTuple):
    """Whether the job is stored. If not, its caller enqueues it alone: `again` if it may be stored nevertheless."""

    stored: bool
    again: bool


class _Waiting(NamedTuple):
    """A checked request that waits for its group."""

    job: jobs.PlainJob
    answer: "asyncio.Future[_Answer]"


class EnqueueGroups:
    """Enqueues single jobs: alone at once, or together with others if many are under way."""

    def __init__(self, principal: Principal, catalog: Catalog, database: Database) -> None:
        self._principal = principal
        self._catalog = catalog
        self._database = database
        self._statements = 0
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def enqueue(self, new: NewJob) -> EnqueueResult:
        """Enqueue one job, also over a lost connection: its id is known, so that no try stores it twice.

        A canceled call may have stored the job or not.
        """
        tries = count()
        if self._statements >= MOST_STATEMENTS and (waiting := self._prepare(new)):
            self._waiting.append(waiting)
            stored, again = await waiting.answer
            if stored:
                return EnqueueResult(new.id)
            tries = count(int(again))
        self._statements += 1
        try:
            return await self._database.reach(
                lambda tx: enqueue.enqueue(tx, self._principal, self._catalog, new, again=next(tries) > 0)
            )
        finally:
            self._end_statement()

    def _prepare(self, new: NewJob) -> _Waiting | None:
        """The checked request; None if it has to be enqueued alone."""
        self._database.check_loop()
        if not new.plain or tracing.may_trace() or self._catalog.find_secret_paths(new.definition):
            return None
        enqueue.check_single(self._principal, new)
        known = self._catalog.ids(new)
        payload, version = self._catalog.prepare(new)
        if known is None or version == UNKNOWN:
            return None
        job = jobs.PlainJob(new.id, *known, version, new.definition, payload)
        return _Waiting(job, asyncio.get_running_loop().create_future())

    def _end_statement(self) -> None:
        self._statements -= 1
        if self._waiting and self._statements < MOST_STATEMENTS:
            self._statements += 1
            # in no caller's context: the group belongs to all of them
            task = asyncio.create_task(self._store_group(), name="fairlead-enqueue", context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _store_group(self) -> None:
        group = self._take_group()
        try:
            if group:
                await self._store(group)
        except asyncio.CancelledError:
            for one in group:
                one.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised in each call that waits
            for one in group:
                if not one.answer.done():
                    one.answer.set_exception(error)
        finally:
            self._end_statement()

    def _take_group(self) -> list[_Waiting]:
        """The oldest calls that wait, without canceled ones; at most MOST_JOBS, and few large ones."""
        size = number = 0
        for one in self._waiting[:MOST_JOBS]:
            size += len(one.job.payload)
            if number and size > MOST_BYTES:
                break
            number += 1
        taken, self._waiting = self._waiting[:number], self._waiting[number:]
        return [one for one in taken if not one.answer.done()]

    async def _store(self, group: list[_Waiting]) -> None:
        tries = count()

        async def store(tx: Tx) -> tuple[set[UUID], bool]:
            again = next(tries) > 0
            try:
                stored = await jobs.enqueue_plain_group(
                    tx, [one.job for one in group], actor=self._principal.actor
                )
            except REJECTED:
                stored = set()  # because of one of them: alone, each gets its own answer
            return stored, again

        stored, again = await self._database.reach(store)
        for one in group:
            if not one.answer.done():
                one.answer.set_result(_Answer(one.job.id in stored, again))
