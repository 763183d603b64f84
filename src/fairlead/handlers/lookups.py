"""The system's resolver, asked in threads. It may be slow, and then only for the tenant whose names it looks up."""

import asyncio
import socket
from typing import Any

from fairlead.handlers.answers import TemporaryFailure
from fairlead.handlers.threads import Threads

MOST_OF_A_TENANT = 8


class Lookups:
    """Each tenant has threads of its own, while it has lookups: nobody waits for another's name servers."""

    def __init__(self) -> None:
        self._pools: dict[str, Threads] = {}

    async def addresses(self, tenant: str, host: str, port: int) -> list[str]:
        """A host's addresses. A TemporaryFailure while all of the tenant's threads wait for answers that nobody wants."""
        pool = self._pools.get(tenant) or self._pools.setdefault(tenant, Threads(MOST_OF_A_TENANT))
        if pool.stuck == pool.max_threads:
            raise TemporaryFailure(
                f"{host} was not looked up: the name servers of {pool.stuck} earlier requests of {tenant} still do not answer"
            )
        found: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        def returned(result: list[str] | Exception) -> None:
            if not pool.running:
                del self._pools[tenant]
                pool.close()
            if not found.done():
                _settle(found, result)

        slot = pool.submit(lambda: _looked_up(host, port), on_start=lambda: None, on_return=returned)
        try:
            return await found
        except asyncio.CancelledError:
            # Python cannot end a lookup: it keeps its thread, and counts, until the resolver gives up
            if not pool.withdraw(slot):
                pool.forsake(slot)
            raise


def _settle(found: "asyncio.Future[list[str]]", result: list[str] | Exception) -> None:
    if isinstance(result, Exception):
        found.set_exception(result)
    else:
        found.set_result(result)


def _looked_up(host: str, port: int) -> list[str] | Exception:
    try:
        found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
        return error
    return list(dict.fromkeys(str(one[4][0]) for one in found))
