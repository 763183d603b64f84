"""Rate limits, counted in the database, so that all server processes share them."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.actions import rate_limits as allowances
from fairlead.actions.rate_limits import RateBudget
from fairlead.db.tx import Tx
from fairlead.errors import TooManyRequests
from fairlead.library.app import Fairlead
from fairlead.server.client_addresses import address_group

MOST_KEYS = 10_000
# How long a process may use its share of a budget.
SHARE_SECONDS = 10.0
# How many times as many requests as one token or user all those of a tenant may make together; hooks likewise.
TENANT_SHARES = 5
# How long a refusal is cached.
REFUSED_SECONDS = 0.1

# Invalid tokens, tickets, codes and cookies from one address.
FROM_ADDRESS = RateBudget(10, 6.0)
# Wrong passwords: for one account from one address, for one account from anywhere, for any account from one address.
AT_ACCOUNT_FROM_ADDRESS = RateBudget(10, 6.0)
AT_ACCOUNT = RateBudget(50, 6.0)
SIGN_INS_FROM_ADDRESS = RateBudget(50, 6.0)


class CountedFailure(NamedTuple):
    """A counter of failures and its budget."""

    key: str
    budget: RateBudget


def address_failures(ip: str | None) -> list[CountedFailure]:
    """The counters of a failed attempt from an address."""
    return [CountedFailure(f"failed:address:{address_group(ip)}", FROM_ADDRESS)]


def account_failures(email: str, ip: str | None) -> list[CountedFailure]:
    """The counters of a failed sign-in. An attacker locks an account for one address long before locking it for all."""
    # some databases read İ as i, which Python folds to i and a dot
    folded = email.casefold().replace("\u0307", "")
    account = sha256(folded.encode(errors="replace")).hexdigest()[:32]
    return [
        CountedFailure(f"failed:account:{account}:{address_group(ip)}", AT_ACCOUNT_FROM_ADDRESS),
        CountedFailure(f"failed:account:{account}", AT_ACCOUNT),
        CountedFailure(f"failed:sign-in:{address_group(ip)}", SIGN_INS_FROM_ADDRESS),
    ]


class FailureLimiter:
    """Limits failed attempts across all server processes."""

    def __init__(self, fl: Fairlead, clock: Callable[[], float] = time.monotonic) -> None:
        self._fl = fl
        self._clock = clock
        # until when a key is refused without a write to the database
        self._refused: OrderedDict[str, float] = OrderedDict()

    async def check(self, tx: Tx, counted: list[CountedFailure]) -> None:
        """Raise TooManyRequests if a budget is used up."""
        self._check_cached(counted)
        for key, budget in counted:
            self._note_refusal(key, await allowances.seconds_until_unit(tx, key, budget))

    async def count(self, counted: list[CountedFailure]) -> None:
        """Count a failed attempt; raise TooManyRequests if there were too many before it."""
        self._check_cached(counted)
        for key, budget in counted:
            share = await self._fl.database.single(partial(allowances.take_units, key=key, budget=budget))
            self._note_refusal(key, share.wait)

    def _check_cached(self, counted: list[CountedFailure]) -> None:
        for key, _ in counted:
            if (wait := self._refused.get(key, 0.0) - self._clock()) > 0:
                raise too_many_requests("Too many failed attempts", wait)

    def _note_refusal(self, key: str, wait: float) -> None:
        if wait <= 0:
            return
        self._refused[key] = self._clock() + wait
        self._refused.move_to_end(key)
        if len(self._refused) > MOST_KEYS:
            self._refused.popitem(last=False)
        raise too_many_requests("Too many failed attempts", wait)


class _BudgetShare(msgspec.Struct):
    """This process's share of a budget."""

    left: int = 0
    until: float = -math.inf
    refused_until: float = -math.inf
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class RateLimiter:
    """A budget of requests for each key. A process takes shares of it, so that most requests need no query."""

    def __init__(
        self, fl: Fairlead, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fl = fl
        self._budget = RateBudget(burst, 1 / rate)
        self._share = max(1, min(burst // 10, int(rate / 2)))
        self._clock = clock
        self._shares: OrderedDict[str, _BudgetShare] = OrderedDict()

    async def take(self, key: str) -> float:
        """Take one request from the budget: 0, or the seconds to wait for the next."""
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _BudgetShare()
            if len(self._shares) > MOST_KEYS:
                self._shares.popitem(last=False)
        if (wait := self._take_cached(share)) is None:
            async with share.lock:
                # another request may have taken a share meanwhile
                if (wait := self._take_cached(share)) is None:
                    await self._take_share(key, share)
                    wait = self._take_cached(share) or 0.0
        return wait

    def _take_cached(self, share: _BudgetShare) -> float | None:
        """The same without a query; None if a query is needed."""
        now = self._clock()
        if share.left > 0 and now < share.until:
            share.left -= 1
            return 0.0
        return share.refused_until - now if now < share.refused_until else None

    async def _take_share(self, key: str, share: _BudgetShare) -> None:
        found = await self._fl.database.single(
            lambda tx: allowances.take_units(tx, f"requests:{key}", self._budget, wanted=self._share)
        )
        now = self._clock()
        share.left, share.until = found.granted, now + SHARE_SECONDS
        if not found.granted:
            share.refused_until = now + max(found.wait, REFUSED_SECONDS)


class CallerLimiter:
    """A budget of requests for each caller, and a larger one for all callers of a tenant, however many it has."""

    def __init__(self, fl: Fairlead, *, kind: str, refusal: str, refusal_of_tenant: str) -> None:
        rate, burst = fl.settings.rate_limit_per_second, fl.settings.rate_limit_burst
        self._callers = RateLimiter(fl, rate, burst)
        self._tenants = RateLimiter(fl, TENANT_SHARES * rate, TENANT_SHARES * burst)
        self._kind = kind
        self._refusal = refusal
        self._refusal_of_tenant = refusal_of_tenant

    async def take(self, caller: str, tenant_id: UUID | None) -> None:
        """Count a request, or raise TooManyRequests."""
        if wait := await self._callers.take(caller):
            raise too_many_requests(self._refusal, wait)
        if tenant_id is not None and (wait := await self._tenants.take(f"{self._kind}:{tenant_id}")):
            raise too_many_requests(self._refusal_of_tenant, wait)


def too_many_requests(what: str, wait: float) -> TooManyRequests:
    """An error that says when to try again."""
    seconds = max(1, math.ceil(wait))
    error = TooManyRequests(f"{what}. Try again in {seconds} s.")
    error.retry_after = seconds
    return error
