"""How often something may be done: counted in the database, so that more processes do not allow more."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import NamedTuple

import msgspec

from fairlead.app import Fairlead
from fairlead.db.tx import Tx
from fairlead.errors import TooManyRequests
from fairlead.server.addresses import place
from fairlead.store import allowances
from fairlead.store.allowances import Budget

MOST_KEYS = 10_000
# How long a process may use up the share of a budget that it took.
SHARE_SECONDS = 10.0
# After a refusal the database is not asked again for so long.
REFUSED_SECONDS = 0.1

# Of one address: bad tokens, tickets, codes and cookies.
FROM_ADDRESS = Budget(10, 6.0)
# Wrong passwords: for one account from one address, for one account from anywhere, for any account from one address.
AT_ACCOUNT_FROM_ADDRESS = Budget(10, 6.0)
AT_ACCOUNT = Budget(50, 6.0)
SIGN_INS_FROM_ADDRESS = Budget(50, 6.0)


class Counted(NamedTuple):
    """What failures are counted for."""

    key: str
    budget: Budget


def from_address(ip: str | None) -> list[Counted]:
    """Failed attempts of an address."""
    return [Counted(f"failed:address:{place(ip)}", FROM_ADDRESS)]


def at_account(email: str, ip: str | None) -> list[Counted]:
    """Failed attempts to sign in: whoever locks an account for their own address does not lock it for others."""
    account = sha256(email.casefold().encode(errors="replace")).hexdigest()[:32]
    return [
        Counted(f"failed:account:{account}:{place(ip)}", AT_ACCOUNT_FROM_ADDRESS),
        Counted(f"failed:account:{account}", AT_ACCOUNT),
        Counted(f"failed:sign-in:{place(ip)}", SIGN_INS_FROM_ADDRESS),
    ]


class Failures:
    """Slows down those who guess, whichever process they ask."""

    def __init__(self, fl: Fairlead, clock: Callable[[], float] = time.monotonic) -> None:
        self._fl = fl
        self._clock = clock
        # until when a key is refused without asking the database, which would cost a write
        self._refused: OrderedDict[str, float] = OrderedDict()

    async def check(self, tx: Tx, counted: list[Counted]) -> None:
        """Refuse to look at all while guesses keep coming."""
        self._check_here(counted)
        for key, budget in counted:
            self._note(key, await allowances.wait(tx, key, budget))

    async def count(self, counted: list[Counted]) -> None:
        """An attempt has failed. Refused if there were too many before it."""
        self._check_here(counted)
        for key, budget in counted:
            share = await self._fl.database.single(partial(allowances.take, key=key, budget=budget))
            self._note(key, share.wait)

    def _check_here(self, counted: list[Counted]) -> None:
        for key, _ in counted:
            if (wait := self._refused.get(key, 0.0) - self._clock()) > 0:
                raise too_many("Too many failed attempts", wait)

    def _note(self, key: str, wait: float) -> None:
        if wait <= 0:
            return
        self._refused[key] = self._clock() + wait
        self._refused.move_to_end(key)
        if len(self._refused) > MOST_KEYS:
            self._refused.popitem(last=False)
        raise too_many("Too many failed attempts", wait)


class _Share(msgspec.Struct):
    """What this process may still use up of a budget."""

    left: int = 0
    until: float = -math.inf
    refused_until: float = -math.inf
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class Rates:
    """A budget of requests for each key. A process takes shares of it, so that most requests ask nobody."""

    def __init__(
        self, fl: Fairlead, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fl = fl
        self._budget = Budget(burst, 1 / rate)
        self._share = max(1, min(burst // 10, int(rate / 2)))
        self._clock = clock
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    async def take(self, key: str) -> float:
        """Take one: 0 if there was one, else the seconds until there is."""
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share()
            if len(self._shares) > MOST_KEYS:
                self._shares.popitem(last=False)
        if (wait := self._take_here(share)) is None:
            async with share.lock:
                # another request may have taken a share meanwhile
                if (wait := self._take_here(share)) is None:
                    await self._renew(key, share)
                    wait = self._take_here(share) or 0.0
        return wait

    def _take_here(self, share: _Share) -> float | None:
        """The same without asking the database; None if only it can tell."""
        now = self._clock()
        if share.left > 0 and now < share.until:
            share.left -= 1
            return 0.0
        return share.refused_until - now if now < share.refused_until else None

    async def _renew(self, key: str, share: _Share) -> None:
        found = await self._fl.database.single(
            lambda tx: allowances.take(tx, f"requests:{key}", self._budget, wanted=self._share)
        )
        now = self._clock()
        share.left, share.until = found.granted, now + SHARE_SECONDS
        if not found.granted:
            share.refused_until = now + max(found.wait, REFUSED_SECONDS)


def too_many(what: str, wait: float) -> TooManyRequests:
    """A refusal that says when to try again."""
    seconds = max(1, math.ceil(wait))
    error = TooManyRequests(f"{what}. Try again in {seconds} s.")
    error.retry_after = seconds
    return error
