"""`fairlead worker`: which applications it takes."""

import asyncio
import inspect
import signal
from pathlib import Path

import pytest

from fairlead import Fairlead, Settings, sync
from fairlead.cli import worker
from fairlead.cli.session import CommandSession
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


async def test_the_application_of_dev_waits_for_the_tenants_that_its_code_names(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "TENANT_SECONDS", 0.01)
    fl = Fairlead(settings=settings, name="shop")

    @fl.every(3600, tenant="initech", name="hourly")
    async def report() -> None: ...

    async with fl:
        waiting = asyncio.create_task(worker.wait_for_tenants(CommandSession({}), fl, asyncio.Event()))
        told = await eventually(lambda: capsys.readouterr().err, "the tenant that is missing")
        await fl.add_tenant("initech")
        await asyncio.wait_for(waiting, SECONDS)
        [stored] = await fl.sync_schedules()

    assert told.startswith(
        "waiting: There is no tenant 'initech' to have the schedule 'hourly'. Add it first"
    )
    assert capsys.readouterr().err == ""  # said once
    assert stored.label == "hourly"


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


def test_the_workers_of_dev_have_as_many_slots_as_others() -> None:
    """`fairlead dev` passes no number, so that it has the library's."""
    [default] = [one.default for one in worker.worker.params if one.name == "concurrency"]

    assert inspect.signature(Fairlead.work).parameters["concurrency"].default == default
