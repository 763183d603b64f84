"""Limits on open long polls, live sockets and followed logs: per caller in this process, per tenant in the database,
across all server processes.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec
import structlog

from fairlead.actions import open_connections
from fairlead.actions.open_connections import ConnectionQuota, QuotaStanding
from fairlead.db.database import Database
from fairlead.errors import FairleadError, Refused, TooManyRequests
from fairlead.library.app import Fairlead
from fairlead.model.quota import Quota, effective_quota, quota_error

log = structlog.get_logger(__name__)

RETRY_SECONDS = 5
# How often changes are written, and how long the counts of other processes are valid.
WRITE_SECONDS = 1.0
# A process that has not renewed its counts for this long counts as dead; it renews them three times as often.
LEASE_SECONDS = 30.0
# A process may use 1/8 of the free room without asking again, so that up to 8 processes do not exceed the quota.
FREE_PARTS = 8


class CallerCap(NamedTuple):
    """How many a caller may have open (0: no limit), and the setting's name."""

    setting: str
    most: int


class _QuotaUse(msgspec.Struct):
    """This process's use of a quota, and the last known use of the others."""

    # requests that hold or ask for one: the record is kept while there are any
    users: int = 0
    held: int = 0
    told: int = 0
    told_at: float = -math.inf
    others: int = 0
    allowed: int | None = None
    # how many can be opened before the next query
    free: int = 0
    # until when to refuse without a query; other processes may close theirs after that
    full_until: float = -math.inf
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def update_counts(self, told: int, standing: QuotaStanding | None, allowed: int | None) -> None:
        """Note the count that was written, and the others' counts that were read."""
        self.told, self.told_at = told, time.monotonic()
        self.others, self.allowed = (0 if standing is None else standing.others), allowed
        self.free = 0 if allowed is None else max(0, allowed - told - self.others) // FREE_PARTS

    def may_open(self) -> bool:
        """Whether there is room by recent counts; takes it."""
        if time.monotonic() - self.told_at > WRITE_SECONDS:
            return False
        if self.allowed is None:
            return True
        self.free -= 1
        return self.free >= 0

    @property
    def is_due(self) -> bool:
        """Whether a change or a renewal must be written."""
        if self.held != self.told:
            return True
        return self.held > 0 and time.monotonic() - self.told_at > LEASE_SECONDS / 3


class QuotaLedger:
    """Counts what this process holds open for each tenant; writes changes at most once a second, and renews them.

    If little room is left, each opening is written before it is admitted, so that other processes see it.
    """

    def __init__(self, fl: Fairlead) -> None:
        self._fl = fl
        self._server_id = uuid4()
        self._uses: dict[ConnectionQuota, _QuotaUse] = {}
        self._writer: asyncio.Task[None] | None = None
        self._database: Database | None = None

    @asynccontextmanager
    async def hold(self, tenant_id: UUID, quota: Quota) -> AsyncIterator[None]:
        """Count one more of a tenant for the length of the block, or refuse it."""
        key = ConnectionQuota(tenant_id, quota)
        known = self._uses.setdefault(key, _QuotaUse())
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

    async def _admit(self, key: ConnectionQuota, known: _QuotaUse) -> None:
        if known.may_open():
            known.held += 1
            return
        async with known.lock:  # one query at a time
            if not known.may_open():
                await self._reserve(key, known)
            known.held += 1

    async def _reserve(self, key: ConnectionQuota, known: _QuotaUse) -> None:
        """Write one more, or raise the quota's error."""
        if time.monotonic() >= known.full_until:
            await self._write_counts({key: known.held + 1})
            if known.allowed is None or known.told + known.others <= known.allowed:
                return
            known.full_until = time.monotonic() + WRITE_SECONDS
            await self._write_counts({key: known.held})
        raise _quota_exceeded(key.quota, known.held + known.others, known.allowed or 0)

    async def _write_counts(self, held: Mapping[ConnectionQuota, int]) -> None:
        """Write our counts, and read the others'."""
        found = await self._fl.database.single(
            lambda tx: open_connections.store_counts(tx, self._server_id, held, seconds=LEASE_SECONDS)
        )
        for key, number in held.items():
            standing = found.get(key)
            own = {} if standing is None else standing.own
            self._uses[key].update_counts(
                number, standing, effective_quota(key.quota, own, self._fl.settings)
            )

    def _start(self) -> None:
        """Start the task that writes counts while anything is open."""
        database = self._fl.database
        if self._database is not database:
            self._database = database
            database.before_close(partial(self._stop, database))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_while_open(), context=Context())

    async def _write_while_open(self) -> None:
        while self._uses:
            await asyncio.sleep(WRITE_SECONDS)
            due = {key: known.held for key, known in self._uses.items() if known.is_due}
            try:
                if due:
                    await self._write_counts(due)
            except FairleadError as error:
                log.warning("openings_not_told", code=error.code, error=error.message)
            for key in [key for key, known in self._uses.items() if not known.users and not known.told]:
                del self._uses[key]

    async def _stop(self, database: Database) -> None:
        """Remove our counts before the database closes."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        try:
            await database.single(lambda tx: open_connections.remove_server(tx, self._server_id))
        except FairleadError as error:
            log.warning("openings_not_told", code=error.code, error=error.message)


class ConcurrencyLimit:
    """The limit of one kind of opening, per caller and per tenant."""

    def __init__(self, ledger: QuotaLedger, quota: Quota, kind: str, caller: CallerCap | None = None) -> None:
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
        """Count one for the length of the block, or raise an error that names the exceeded limit."""
        self._require_room(caller)
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

    def _require_room(self, caller: object) -> None:
        cap = self._caller
        if cap is not None and cap.most and self._open[caller] >= cap.most:
            error = TooManyRequests(
                f"This token or user has {self._open[caller]} {self._kind} open at this server; the limit is {cap.most} "
                f"(FAIRLEAD_{cap.setting.upper()}). Close some, or try again later."
            )
            error.retry_after = RETRY_SECONDS
            raise error


def _quota_exceeded(quota: Quota, used: int, allowed: int) -> Refused:
    error = quota_error(quota, used=used, allowed=allowed)
    if isinstance(error, TooManyRequests):
        error.retry_after = RETRY_SECONDS
    return error
