"""`fairlead worker`: which applications it takes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, Settings, sync
from fairlead.actions import system
from fairlead.cli import dev, worker
from fairlead.cli.session import CommandSession
from fairlead.store.workers import RegisteredWorker
from tests.given import TENANT
from tests.processes import FAIRLEAD, run, started, until
from tests.waiting import SECONDS, eventually

SHOP = """
import os
from fairlead.sync import Fairlead

fl = Fairlead()
if "OPENED" in os.environ:
    fl.open()

@fl.job
def pack(order: int) -> str:
    return f"packed {order}"

@fl.job
def ship(order: int) -> str:
    with fl:  # open already: the worker has it
        return str(pack.enqueue(tenant="acme", order=order).id)

@fl.job(isolate=True)
def weigh() -> int:
    return os.getpid()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@asynccontextmanager
async def during(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run this during the block, and then stop it."""
    stop = asyncio.Event()
    task = asyncio.create_task(work(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, SECONDS)


def work_of_application(
    fl: Fairlead, settings: Settings
) -> Callable[[asyncio.Event], Coroutine[Any, Any, None]]:
    """What `fairlead dev shop:fl` does in the process of the application."""
    return partial(
        worker._work_for_dev, CommandSession({"database_url": settings.database_url}), fl, "shop:fl"
    )


async def test_the_application_of_dev_waits_for_the_tenants_that_its_code_names(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "TENANT_SECONDS", 0.01)
    fl = Fairlead(name="shop")

    @fl.every(3600, tenant="initech", name="hourly")
    async def report() -> None: ...

    async with Fairlead(settings=settings) as console, during(work_of_application(fl, settings)):
        waiting = await eventually(lambda: capsys.readouterr().err, "the tenant that is missing")
        assert waiting.startswith(
            "waiting: There is no tenant 'initech' to have the schedule 'hourly'. Add it first"
        )
        await console.add_tenant("initech")
        serving = await eventually(lambda: capsys.readouterr().err, "the application to be served")

    assert serving == "shop:fl: serving report\n"


async def test_the_workers_of_dev_have_as_many_slots_as_others(settings: Settings) -> None:
    [slots] = [option.default for option in worker.worker.params if option.name == "concurrency"]
    fl = Fairlead(name="shop")

    @fl.job
    async def report() -> None: ...

    async with (
        Fairlead(settings=settings) as console,
        during(work_of_application(fl, settings)),
        during(partial(dev._run_worker, console)),
        asyncio.timeout(SECONDS),
    ):
        while len(workers := await list_workers(console)) < 2:
            await asyncio.sleep(0.01)

    assert [shown.concurrency for shown in workers] == [slots, slots]


async def list_workers(fl: Fairlead) -> Sequence[RegisteredWorker]:
    async with fl.transaction() as tx:
        return await system.list_workers(tx, fl.principal, lease_seconds=30, after="", limit=10)


@pytest.mark.thorough
@pytest.mark.parametrize("opened", [False, True])
def test_a_synchronous_application_is_served_and_its_jobs_may_use_it(
    settings: Settings, folder: Path, *, opened: bool
) -> None:
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url)} | ({"OPENED": "1"} if opened else {})
    with started([FAIRLEAD, "worker", "shop:fl"], env=env, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serving pack, ship, weigh; Ctrl-C stops\n"
        with sync.Fairlead(settings=settings) as fl:
            packed = fl.enqueue("ship", tenant=TENANT, payload={"order": 7}).result(timeout=60)
            weighed = fl.enqueue("weigh", tenant=TENANT).result(timeout=60)
            until(lambda: fl.read(packed).output == "packed 7", "the job that the job enqueued")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert weighed != process.pid


@pytest.mark.parametrize("name", ["shop:pack", "shop:nothing", "shop:fl.inner.functions"])
def test_what_is_no_fairlead_is_refused(folder: Path, name: str) -> None:
    done = run("worker", name, env={"PYTHONPATH": str(folder)})

    assert done.returncode != 0
    assert f"'{name}' does not name a Fairlead. Use module:name, such as shop:fl." in done.stderr
