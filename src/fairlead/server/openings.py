"""What callers keep open: long polls, live sockets and followed logs. Of a caller they are counted in this process, of a
tenant in the database, for all server processes together.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec
import structlog

from fairlead.app import Fairlead
from fairlead.db.tx import Database
from fairlead.errors import FairleadError, Refused, TooManyRequests
from fairlead.model.quota import Quota, allowed_of, exceeded
from fairlead.store import openings
from fairlead.store.openings import Key, Standing

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5
# How often changes are written, and for how long what was read of the others is good.
TELL_SECONDS = 1.0
# A process that says nothing for so long is taken to have died; it says what it holds three times as often.
LEASE_SECONDS = 30.0
# Of the room that is left, one part in so many can be used up without asking again: so many processes fit.
PARTS = 8


class Cap(NamedTuple):
    """How many of something a caller may have open, and the setting that says so. 0 means any number."""

    setting: str
    most: int


class _Known(msgspec.Struct):
    """What this process holds of a quota, and what it last heard of the others."""

    # those who hold one or ask for one: while there are any, this is kept
    users: int = 0
    held: int = 0
    told: int = 0
    told_at: float = -math.inf
    others: int = 0
    allowed: int | None = None
    # how many can still be opened before the database is asked
    free: int = 0
    # until when there is none: others may close theirs meanwhile, and the database is not asked for every refusal
    full_until: float = -math.inf
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def hear(self, told: int, standing: Standing | None, allowed: int | None) -> None:
        """Note what was told, and what came back."""
        self.told, self.told_at = told, time.monotonic()
        self.others, self.allowed = (0 if standing is None else standing.others), allowed
        self.free = 0 if allowed is None else max(0, allowed - told - self.others) // PARTS

    def may_open(self) -> bool:
        """Whether there is room for sure, by what was heard a moment ago."""
        if time.monotonic() - self.told_at > TELL_SECONDS:
            return False
        if self.allowed is None:
            return True
        self.free -= 1
        return self.free >= 0

    @property
    def is_due(self) -> bool:
        """Whether the database is to be told: of a change, or that this process still lives."""
        if self.held != self.told:
            return True
        return self.held > 0 and time.monotonic() - self.told_at > LEASE_SECONDS / 3


class Ledger:
    """What this process holds open for each tenant: written when it changes, once a second at most, and renewed.

    Where little room is left, each opening is written before it is admitted, so that the processes see each other's.
    """

    def __init__(self, fl: Fairlead) -> None:
        self._fl = fl
        self._server_id = uuid4()
        self._known: dict[Key, _Known] = {}
        self._teller: asyncio.Task[None] | None = None
        self._database: Database | None = None

    @asynccontextmanager
    async def hold(self, tenant_id: UUID, quota: Quota) -> AsyncIterator[None]:
        """Count one more of a tenant for the length of the block, or refuse it."""
        key = Key(tenant_id, quota)
        known = self._known.setdefault(key, _Known())
        known.users += 1
        self._start()
        try:
            await self._admit(key, known)
            try:
                yield
            finally:
                known.held -= 1
                known.full_until = -math.inf
        finally:
            known.users -= 1

    async def _admit(self, key: Key, known: _Known) -> None:
        if known.may_open():
            known.held += 1
            return
        async with known.lock:  # those who come together ask one after the other
            if not known.may_open():
                await self._ask(key, known)
            known.held += 1

    async def _ask(self, key: Key, known: _Known) -> None:
        """Write one more than is held, or refuse it."""
        if time.monotonic() >= known.full_until:
            await self._tell({key: known.held + 1})
            if known.allowed is None or known.told + known.others <= known.allowed:
                return
            known.full_until = time.monotonic() + TELL_SECONDS
            await self._tell({key: known.held})
        raise _full(key.quota, known.held + known.others, known.allowed or 0)

    async def _tell(self, held: Mapping[Key, int]) -> None:
        """Write what is held, and hear of the others."""
        found = await self._fl.database.single(
            lambda tx: openings.tell(tx, self._server_id, held, seconds=LEASE_SECONDS)
        )
        for key, number in held.items():
            standing = found.get(key)
            own = {} if standing is None else standing.own
            self._known[key].hear(number, standing, allowed_of(key.quota, own, self._fl.settings))

    def _start(self) -> None:
        """Begin to tell, unless this has begun: it goes on while anything is open."""
        database = self._fl.database
        if self._database is not database:
            self._database = database
            database.before_close(partial(self._stop, database))
        if self._teller is None or self._teller.done():
            self._teller = asyncio.create_task(self._tell_while_open())

    async def _tell_while_open(self) -> None:
        while self._known:
            await asyncio.sleep(TELL_SECONDS)
            due = {key: known.held for key, known in self._known.items() if known.is_due}
            try:
                if due:
                    await self._tell(due)
            except FairleadError as error:
                log.warning("openings_not_told", code=error.code, error=error.message)
            for key in [key for key, known in self._known.items() if not known.users and not known.told]:
                del self._known[key]

    async def _stop(self, database: Database) -> None:
        """The connections are about to be closed: nothing is held after that."""
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.gather(self._teller, return_exceptions=True)
        try:
            await database.single(lambda tx: openings.leave(tx, self._server_id))
        except FairleadError as error:
            log.warning("openings_not_told", code=error.code, error=error.message)


class Openings:
    """How many of one kind are open, of each caller and of each tenant."""

    def __init__(self, ledger: Ledger, quota: Quota, kind: str, caller: Cap | None = None) -> None:
        self._ledger = ledger
        self._quota = quota
        self._kind = kind
        self._caller = caller
        self._open: Counter[object] = Counter()

    @property
    def busiest(self) -> int:
        """How many the caller with the most has open."""
        return max(self._open.values(), default=0)

    @asynccontextmanager
    async def open(self, caller: object, tenant_id: UUID | None) -> AsyncIterator[None]:
        """Count one for the length of the block, or refuse it with the limit that it would exceed."""
        self._require(caller)
        self._open[caller] += 1
        try:
            if tenant_id is None:
                yield
            else:
                async with self._ledger.hold(tenant_id, self._quota):
                    yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    def _require(self, caller: object) -> None:
        cap = self._caller
        if cap is not None and cap.most and self._open[caller] >= cap.most:
            error = TooManyRequests(
                f"This token or user has {self._open[caller]} {self._kind} open at this server; the limit is {cap.most} "
                f"(FAIRLEAD_{cap.setting.upper()}). Close some, or try again later."
            )
            error.retry_after = RETRY_SECONDS
            raise error


def _full(quota: Quota, used: int, allowed: int) -> Refused:
    error = exceeded(quota, used=used, allowed=allowed)
    if isinstance(error, TooManyRequests):
        error.retry_after = RETRY_SECONDS
    return error
