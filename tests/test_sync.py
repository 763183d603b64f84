"""The synchronous face of what makes jobs by itself."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from fairlead import Context, Settings, sync, testing
from fairlead.actions import triggers
from fairlead.errors import (
    AlreadyRegistered,
    ConnectionNotSupported,
    NotOpen,
    RegistrationUnknown,
    TenantUnknown,
)
from fairlead.model.trigger import Trigger
from tests.given import OTHER, TENANT
from tests.processes import until

FAR = datetime(2999, 1, 1, tzinfo=UTC)


def kept(fl: sync.Fairlead) -> dict[str, Trigger]:
    async def listed() -> dict[str, Trigger]:
        async with fl.inner.transaction() as tx:
            return {one.label: one for one in await triggers.listed(tx, fl.inner.principal)}

    return fl._wait(listed())


def emitted(fl: sync.Fairlead, name: str, **asked: Any) -> list[Any]:
    return fl._wait(testing.assert_emitted(fl.inner, name, **asked))


def test_a_registered_function_runs_in_a_thread_until_it_is_unregistered(settings: Settings) -> None:
    ran: list[tuple[str, str]] = []

    def cleanup(ctx: Context) -> None:
        ran.append((ctx.tenant, threading.current_thread().name))

    with sync.Fairlead(settings=settings) as fl:
        trigger = fl.register(TENANT, "cleanup", datetime.now(UTC), 1, cleanup, timeout=60)
        until(lambda: len(ran) > 1, "two runs")
        with pytest.raises(AlreadyRegistered):
            fl.register(TENANT, "cleanup", FAR, 1, cleanup)
        assert kept(fl)["cleanup"].id == trigger.id
        fl.unregister(TENANT, "cleanup")
        assert kept(fl) == {}
        with pytest.raises(RegistrationUnknown):
            fl.unregister(TENANT, "cleanup")

    assert {tenant for tenant, _ in ran} == {TENANT}
    assert not {thread for _, thread in ran} & {"fairlead", threading.main_thread().name}
    assert "fairlead" not in {thread.name for thread in threading.enumerate()}


def test_a_registered_function_may_use_the_fairlead_that_runs_it(settings: Settings) -> None:
    done = threading.Event()

    with sync.Fairlead(settings=settings) as fl:

        def once() -> None:
            fl.emit("cleanup.done", tenant=TENANT)
            fl.unregister(TENANT, "once")
            done.set()

        fl.register(TENANT, "once", datetime.now(UTC), 1, once)
        assert done.wait(30)
        emitted(fl, "cleanup.done", count=1)


def test_canceling_stops_the_loop_and_leaves_the_schedules(settings: Settings) -> None:
    with sync.Fairlead(settings=settings) as fl:
        trigger = fl.register(TENANT, "cleanup", FAR, 60, lambda: None)
        fl.cancel_periodic()

        assert kept(fl) == {"cleanup": trigger}
        assert fl.register(TENANT, "cleanup", FAR, 60, lambda: None) == trigger


def test_schedules_in_code_are_synced_and_a_scheduled_function_can_be_enqueued(settings: Settings) -> None:
    fl = sync.Fairlead(settings=settings, name="shop")

    @fl.cron("0 2 * * *", tenant=TENANT, name="nightly", payload={"depth": 3})
    @fl.every(60, tenant=OTHER, payload={"depth": 1})
    def sweep(depth: int) -> int:
        return depth * 2

    @fl.every(60, tenant=TENANT)
    @fl.job(max_attempts=2)
    def tidy() -> None: ...

    assert sweep(4) == 8
    with fl:
        fl.sync_schedules()
        assert {label: (one.tenant, one.owner) for label, one in kept(fl).items()} == {
            "nightly": (TENANT, "shop"),
            "sweep": (OTHER, "shop"),
            "tidy": (TENANT, "shop"),
        }
        assert fl.read(sweep.enqueue(tenant=TENANT, depth=1).id).payload == {"depth": 1}
        assert tidy.key == "tidy"


def test_an_event_is_stored_or_joins_the_callers_transaction(settings: Settings) -> None:
    with sync.Fairlead(settings=settings) as fl, psycopg.connect(str(settings.database_url)) as connection:
        first = fl.emit("user.joined", tenant=TENANT, data={"name": "Ada"}, correlation_id="c-1")
        fl.emit("user.joined", tenant=TENANT, tx=connection)
        connection.rollback()
        second = fl.emit("user.joined", tenant=TENANT, data={"name": "Grace"}, tx=connection)
        connection.commit()
        with pytest.raises(TenantUnknown):
            fl.emit("user.joined", tenant="nobody", tx=connection)

        found = emitted(fl, "user.joined", count=2)
        assert {(event.id, event.data["name"], event.correlation_id) for event in found} == {
            (first, "Ada", "c-1"),
            (second, "Grace", None),
        }
    joined_only = sync.Fairlead(settings=settings)
    with psycopg.connect(str(settings.database_url)) as connection:
        joined_only.emit("user.joined", tenant=TENANT, tx=connection)
    with pytest.raises(NotOpen):
        joined_only.emit("user.joined", tenant=TENANT)


def test_an_asynchronous_connection_is_refused(settings: Settings) -> None:
    async def connected() -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(str(settings.database_url))

    async def refused() -> None:
        async with await connected() as connection:
            with pytest.raises(ConnectionNotSupported, match="awaited"):
                sync.Fairlead(settings=settings).emit("user.joined", tenant=TENANT, tx=connection)

    asyncio.run(refused())
