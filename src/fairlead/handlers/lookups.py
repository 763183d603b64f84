"""DNS lookups in threads, with a separate pool for each tenant, so that slow name servers delay only their tenant."""

import asyncio
import socket
from typing import Any

from fairlead.handlers.http_failures import TemporaryFailure
from fairlead.handlers.threads import Threads

MOST_OF_A_TENANT = 8


class Lookups:
    """Resolves names in a thread pool per tenant; a pool exists only while its tenant has lookups."""

    def __init__(self) -> None:
        self._pools: dict[str, Threads] = {}

    async def addresses(self, tenant: str, host: str, port: int) -> list[str]:
        """A host's addresses. Raises TemporaryFailure while abandoned lookups occupy all of the tenant's threads."""
        pool = self._pools.get(tenant) or self._pools.setdefault(tenant, Threads(MOST_OF_A_TENANT))
        if pool.stuck == pool.max_threads:
            raise TemporaryFailure(
                f"{host} was not looked up: {pool.stuck} earlier lookups of {tenant} still wait for their name servers"
            )
        found: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        def collect(result: list[str] | Exception) -> None:
            if not pool.running:
                del self._pools[tenant]
                pool.close()
            if not found.done():
                _set_result(found, result)

        slot = pool.submit(lambda: _look_up(host, port), on_start=lambda: None, on_return=collect)
        try:
            return await found
        except asyncio.CancelledError:
            # Python cannot cancel a lookup: it occupies its thread until the resolver gives up
            if not pool.withdraw(slot):
                pool.forsake(slot)
            raise


def _set_result(found: "asyncio.Future[list[str]]", result: list[str] | Exception) -> None:
    if isinstance(result, Exception):
        found.set_exception(result)
    else:
        found.set_result(result)


def _look_up(host: str, port: int) -> list[str] | Exception:
    try:
        found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return error
    return list(dict.fromkeys(str(one[4][0]) for one in found))
