"""Names are looked up in threads of the tenant's own: slow name servers delay nobody else."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.handlers.http import HttpRequests
from fairlead.handlers.http_failures import TemporaryFailure
from fairlead.handlers.lookups import MOST_OF_A_TENANT, Lookups
from fairlead.model.messages.network import Allowed
from fairlead.model.outcome import Failed, Succeeded
from tests.handlers.attempts import context, outcome_of, until
from tests.handlers.loopback import Reply, always, serving
from tests.waiting import SECONDS

HERE = ["127.0.0.1"]


class Resolver:
    """Knows all names; those that begin with `slow` it knows when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host.startswith("slow"):
            assert self.let.wait(SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HERE[0], port))]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.let.set()


async def all_slow(resolver: Resolver, lookups: Lookups, tenant: str) -> list[asyncio.Task[list[str]]]:
    """As many lookups as a tenant may have, all of them in their threads."""
    names = [f"slow-{number}.example" for number in range(MOST_OF_A_TENANT)]
    tasks = [asyncio.create_task(lookups.addresses(tenant, name, 80)) for name in names]
    await until(lambda: len(resolver.asked) == MOST_OF_A_TENANT, "the lookups")
    return tasks


async def test_slow_lookups_of_a_tenant_delay_its_own_and_nobody_elses(resolver: Resolver) -> None:
    lookups = Lookups()
    slow = await all_slow(resolver, lookups, "acme")
    own = asyncio.create_task(lookups.addresses("acme", "quick.example", 80))

    assert await lookups.addresses("other", "quick.example", 80) == HERE
    assert resolver.asked.count("quick.example") == 1, "its own wait for a thread"
    resolver.let.set()

    assert await asyncio.gather(own, *slow) == [HERE] * (1 + MOST_OF_A_TENANT)


async def test_lookups_that_nobody_waits_for_count_until_they_return(resolver: Resolver) -> None:
    lookups = Lookups()
    slow = await all_slow(resolver, lookups, "acme")
    waits = asyncio.create_task(lookups.addresses("acme", "quick.example", 80))
    gives_up = asyncio.create_task(lookups.addresses("acme", "withdrawn.example", 80))
    await asyncio.sleep(0)
    for one in (*slow, gives_up):
        one.cancel()
    await asyncio.wait([*slow, gives_up])

    with pytest.raises(TemporaryFailure, match=r"next\.example was not looked up.*acme still wait"):
        await lookups.addresses("acme", "next.example", 80)
    assert await lookups.addresses("other", "quick.example", 80) == HERE
    resolver.let.set()

    assert await waits == HERE
    assert await lookups.addresses("acme", "next.example", 80) == HERE
    assert "withdrawn.example" not in resolver.asked


async def test_what_the_resolver_refuses_is_raised_where_it_is_waited_for(resolver: Resolver) -> None:
    with pytest.raises(socket.gaierror, match="not known"):
        await Lookups().addresses("acme", "unknown.example", 80)


async def test_threads_are_let_go_when_a_tenant_has_no_lookups(resolver: Resolver) -> None:
    before = threading.active_count()
    lookups = Lookups()
    for number in range(20):
        await lookups.addresses(f"tenant-{number}", "quick.example", 80)

    await until(lambda: threading.active_count() <= before, "the threads to end")


async def test_requests_of_others_are_made_while_a_tenants_name_servers_are_silent(
    resolver: Resolver,
) -> None:
    requests = HttpRequests(Allowed.of(HERE))

    async def outcome(tenant: str, url: str, **more: Any) -> Any:
        return await outcome_of(requests.request, ctx=context({"url": url, **more}, tenant=tenant))

    async with serving(always(Reply(200, "hello"))) as server:
        slow = (outcome("acme", "http://slow.example", timeout_seconds=0.1) for _ in range(MOST_OF_A_TENANT))
        for one in await asyncio.gather(*slow):
            assert "did not answer within 0.1 s" in one.message
        refused = await outcome("acme", f"http://quick.example:{server.port}")
        made = await outcome("other", f"http://quick.example:{server.port}")

    assert isinstance(refused, Failed)
    assert (refused.kind, refused.retryable) == ("TemporaryFailure", True)
    assert "quick.example was not looked up" in refused.message
    assert isinstance(made, Succeeded)
