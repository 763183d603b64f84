"""The helpers that users test their own jobs with."""

import asyncio
import re
import sys
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import create_engine, text

from fairlead import (
    Backoff,
    Context,
    Fairlead,
    Fatal,
    JobStatus,
    Settings,
    Snooze,
    sync,
    test_database,
    testing,
)
from fairlead.actions import triggers
from fairlead.db.scratch import scratch_database
from fairlead.errors import InvalidInput, JobFailed, NotOpen, TriggerUnknown, WrongLoop
from fairlead.runtime.tick import Tick
from fairlead.store import tenants
from tests import given
from tests.processes import environment, run_to_end

FAR = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> Fairlead:
    """An application's Fairlead, as its module would make it."""
    fl = Fairlead(settings=Settings(database_url="postgresql://nobody@127.0.0.1:1/production"))

    @fl.job
    async def greet(ctx: Context, name: str) -> str:
        return f"Hello, {name}"

    @fl.job(max_attempts=3, backoff=Backoff(base_seconds=600))
    async def fail(ctx: Context) -> None:
        raise RuntimeError(f"attempt {ctx.attempt_no}")

    @fl.job
    async def refuse() -> None:
        raise Fatal("never")

    @fl.job
    async def nap(ctx: Context) -> str:
        if ctx.attempt_no < 3:
            raise Snooze(timedelta(hours=1))
        return "rested"

    @fl.job
    async def family(ctx: Context, children: int) -> None:
        for number in range(children):
            await ctx.enqueue("greet", payload={"name": f"child {number}"})

    return fl


@pytest.fixture
def on_copies(monkeypatch: pytest.MonkeyPatch, migrated: str) -> None:
    """New databases are copies of a migrated one: to migrate each takes longer than the rest of a test."""
    monkeypatch.setattr(test_database, "scratch_database", partial(scratch_database, template=migrated))


# A Fairlead to test with


@pytest.mark.thorough
def test_without_anything_there_is_a_database_with_a_tenant_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it has been read before
    tmp_path.chmod(0o755)

    async def use() -> list[Path]:
        async with testing.fairlead() as fl, fl.transaction() as tx:
            assert "test" in await tenants.get_ids(tx, ["test"])
            assert await given.count(tx, "jobs") == 0
            return list(tmp_path.iterdir())  # noqa: ASYNC240

    assert len(asyncio.run(use())) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("on_copies")
async def test_an_application_is_lent_another_database_and_gets_its_own_back(
    app: Fairlead, server: str
) -> None:
    before = app.settings, app.catalog
    urls = []
    for _ in range(2):
        async with testing.fairlead(app, server_url=server) as fl:
            assert fl is app
            urls.append(fl.database.url)
            await fl.functions["greet"].enqueue(tenant="test", name="Ada")
            assert await fl.database.transact(lambda tx: given.count(tx, "jobs")) == 1

    assert (app.settings, app.catalog) == before
    assert urls[0] != urls[1]
    with pytest.raises(NotOpen):
        _ = app.database


@pytest.mark.usefixtures("on_copies")
async def test_a_new_database_is_dropped_also_when_the_test_fails(app: Fairlead, server: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with testing.fairlead(app, server_url=server) as fl:
            url = fl.database.url
            raise ZeroDivisionError

    assert app.settings.database_url != url
    async with testing.fairlead(app, server_url=server) as fl, fl.transaction() as tx:
        [(left,)] = await tx.values(
            "select count(*) from pg_database where datname like 'fairlead_test_%%'", []
        )
        assert left == 1


async def test_a_given_database_is_used_as_it_is(app: Fairlead, database_url: str) -> None:
    for times in (1, 2):
        async with testing.fairlead(app, database_url=database_url, tenant=given.TENANT) as fl:
            await fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"})
            await testing.assert_enqueued(fl, "greet", count=times)


async def test_a_fairlead_that_is_open_is_not_taken_from_its_database(fl: Fairlead, server: str) -> None:
    with pytest.raises(InvalidInput, match="open already"):
        async with testing.fairlead(fl, server_url=server):
            pass
    with pytest.raises(InvalidInput, match="not both"):
        async with testing.fairlead(server_url=server, database_url=server):
            pass


FIXTURE_TEST = """
import os, pytest
from fairlead import Fairlead, testing

app = Fairlead()

@app.job
async def greet(name: str) -> str:
    return f"Hello, {name}"

fl = testing.fixture(app, server_url=os.environ["SERVER"])

@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["Ada", "Grace"])
async def test_greet(fl, name):
    job = await greet.enqueue(tenant="test", name=name)
    await testing.assert_enqueued(fl, greet, payload={"name": name}, count=1)
    await testing.run_due(fl)
    assert await job.result(timeout=0) == f"Hello, {name}"
"""


async def pytest_says(folder: Path, *plugins: str, **env: str) -> str:
    """What pytest, with these plugins only, has to say about the tests in a folder."""
    chosen = [argument for plugin in plugins for argument in ("-p", plugin)]
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, str(folder)]
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = await asyncio.to_thread(run_to_end, argv, cwd=folder, env=environment(**env))
    return done.stdout + done.stderr


SHARED_TEST = """
import pytest
from fairlead import Fairlead, sync, testing

one, other, third = testing.fixture(), testing.fixture(Fairlead()), testing.fixture(sync.Fairlead())
servers = set()

@pytest.mark.asyncio
async def test_one(one, other):
    servers.update(fl.direct_url.partition("?")[2] for fl in (one, other))

def test_third(third):
    servers.add(third.direct_url.partition("?")[2])
    assert len(servers) == 1
"""


@pytest.mark.thorough
async def test_a_fixture_gives_each_test_a_database_of_its_own_and_all_share_one_server(
    server: str, tmp_path: Path
) -> None:
    """On a server that is given, and on their own. In one run of pytest: it takes a second to start."""
    (tmp_path / "test_given_server.py").write_text(FIXTURE_TEST)
    (tmp_path / "test_own_server.py").write_text(FIXTURE_TEST.replace('os.environ["SERVER"]', "None"))
    (tmp_path / "test_shared_server.py").write_text(SHARED_TEST)

    assert "6 passed" in await pytest_says(tmp_path, "pytest_asyncio.plugin", SERVER=server)


@pytest.mark.thorough
async def test_the_example_of_a_synchronous_application_works_as_the_page_has_it(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/how-to/test-your-jobs.md").read_text("utf-8")
    for name in ("shop.py", "test_shop.py"):
        [block] = re.findall(rf"^```python\n(# {name}\n.*?)^```", page, re.DOTALL | re.MULTILINE)
        (tmp_path / name).write_text(block)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfairlead_app = shop:fl\n")

    assert "1 passed" in await pytest_says(tmp_path, "fairlead.pytest_plugin")


def test_the_module_does_not_need_pytest() -> None:
    script = "import sys, fairlead.testing; sys.exit('pytest' in sys.modules)"
    assert run_to_end([sys.executable, "-c", script], env=environment()).returncode == 0


async def test_a_web_application_is_called_on_the_tests_own_loop(app: Fairlead, database_url: str) -> None:
    web = FastAPI()

    @web.post("/people/{name}")
    async def sign_up(name: str) -> str:
        return str((await app.functions["greet"].enqueue(tenant="test", name=name)).id)

    async with testing.fairlead(app, database_url=database_url) as fl:
        transport = httpx2.ASGITransport(app=web)
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            response = await client.post("/people/Ada")
        [job] = await testing.assert_enqueued(fl, "greet", payload={"name": "Ada"}, count=1)
        assert response.json() == str(job.id)

        with pytest.raises(WrongLoop, match="TestClient has another one"):
            await asyncio.to_thread(lambda: TestClient(web).post("/people/Grace"))


async def test_others_reach_the_tests_database_by_its_url(app: Fairlead, database_url: str) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        await fl.enqueue("greet", tenant="test", payload={"name": "Ada"})
        engine = create_engine(fl.direct_url.replace("postgresql", "postgresql+psycopg", 1))
        with engine.connect() as connection:
            assert connection.scalar(text("select count(*) from fairlead.jobs")) == 1
        engine.dispose()
        with psycopg.connect(fl.direct_url) as connection:
            assert connection.execute("select count(*) from fairlead.jobs").fetchall() == [(1,)]


# With a synchronous one


@pytest.fixture
def shop() -> sync.Fairlead:
    """A synchronous application's Fairlead, as its module would make it."""
    fl = sync.Fairlead(
        settings=Settings(database_url="postgresql://nobody@127.0.0.1:1/production"), name="shop"
    )

    @fl.job
    def pack(order: int) -> str:
        return f"packed {order}"

    @fl.every(3600, tenant="test", payload={"order": 9})
    @fl.job(key="send")
    def send(order: int) -> None:
        fl.enqueue("pack", tenant="test", payload={"order": order})

    return fl


@pytest.mark.usefixtures("on_copies")
def test_a_synchronous_application_is_lent_a_database_and_gets_its_own_back(
    shop: sync.Fairlead, server: str
) -> None:
    before = shop.inner.settings, shop.inner.catalog
    for _ in range(2):
        with testing.fairlead(shop, server_url=server) as fl:
            assert fl is shop
            shop.enqueue("pack", tenant="test", payload={"order": 7})
            testing.assert_enqueued(fl, "pack", count=1)
            with pytest.raises(InvalidInput, match="open already"), testing.fairlead(shop, server_url=server):
                pass

    assert (shop.inner.settings, shop.inner.catalog) == before
    assert not shop.is_open
    assert not {one.name for one in threading.enumerate()} & {"fairlead", "fairlead-testing"}


def test_every_helper_goes_without_await(shop: sync.Fairlead, database_url: str) -> None:
    with testing.fairlead(shop, database_url=database_url) as fl:
        fl.wait(with_rule(fl.inner, "order.paid", "pack", {"order": "{{event.order}}"}))
        fl.emit("order.paid", tenant="test", data={"order": 8})

        assert len(testing.assert_emitted(fl, "order.paid", data={"order": 8}, count=1)) == 1
        assert testing.dispatch_events(fl) == 1
        assert testing.fire_schedules(fl, "send") == 1
        assert testing.run_due(fl, until_idle=True) == Tick(3, {JobStatus.SUCCEEDED: 3})
        assert [job.output for job in testing.assert_enqueued(fl, "pack", count=2)] == [
            "packed 9",
            "packed 8",
        ]
        with pytest.raises(AssertionError, match="Expected 0 of 'pack', found 2"):
            testing.assert_enqueued(fl, "pack", count=0)


async def test_it_can_be_used_while_a_loop_runs_in_this_thread(
    shop: sync.Fairlead, database_url: str
) -> None:
    with testing.fairlead(shop, database_url=database_url) as fl:
        assert testing.run_due(fl) == Tick(0, {})


# Running


async def test_due_jobs_run_with_what_they_enqueue_and_the_report_says_how_they_ended(
    app: Fairlead, database_url: str
) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        job = await fl.enqueue("greet", tenant="test", payload={"name": "Ada"})
        await fl.enqueue("family", tenant="test", payload={"children": 2})
        await fl.enqueue("refuse", tenant="test")
        await fl.enqueue("greet", tenant="test", payload={"name": "Zoe"}, scheduled_for=FAR)

        report = await testing.run_due(fl)

        assert report.ran == 5
        assert report.statuses == {JobStatus.SUCCEEDED: 4, JobStatus.FAILED: 1}
        assert await job.result(timeout=0) == "Hello, Ada"
        assert (await testing.run_due(fl)).ran == 0
        await given.no_inconsistencies(fl.database)


async def test_until_idle_nothing_waits_for_its_time(app: Fairlead, database_url: str) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        scheduled = await fl.enqueue("greet", tenant="test", payload={"name": "Zoe"}, scheduled_for=FAR)
        failing = await fl.enqueue("fail", tenant="test")
        napping = await fl.enqueue("nap", tenant="test")

        report = await testing.run_due(fl, until_idle=True)

        assert report.ran == 1 + 3 + 3
        assert report.statuses == {JobStatus.SUCCEEDED: 2, JobStatus.DEAD_LETTER: 1, JobStatus.QUEUED: 4}
        assert await scheduled.result(timeout=0) == "Hello, Zoe"
        assert await napping.result(timeout=0) == "rested"
        assert (await failing.read()).last_error == "RuntimeError: attempt 3"
        await given.no_inconsistencies(fl.database)


@pytest.mark.parametrize(
    ("key", "kind", "words"), [("fail", RuntimeError, "attempt 1"), ("refuse", Fatal, "never")]
)
async def test_what_a_function_raises_comes_out_if_it_is_asked_for(
    app: Fairlead, database_url: str, key: str, kind: type[Exception], words: str
) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        fine = await fl.enqueue("greet", tenant="test", payload={"name": "Ada"})
        job = await fl.enqueue(key, tenant="test")

        with pytest.raises(kind, match=words) as raised:
            await testing.run_due(fl, raise_errors=True)

        assert raised.traceback[-1].name == key
        assert await fine.result(timeout=0) == "Hello, Ada"
        assert (await job.read()).last_error == f"{kind.__name__}: {words}"
        # nothing of it stays
        await fl.enqueue(key, tenant="test")
        assert (await testing.run_due(fl)).ran == 1


async def test_what_a_function_in_a_thread_raises_comes_out_too(database_url: str) -> None:
    app = Fairlead(settings=Settings())

    @app.job
    def divide(n: int) -> float:
        return 1 / n

    async with testing.fairlead(app, database_url=database_url) as fl:
        await divide.enqueue(tenant="test", n=2)
        assert (await testing.run_due(fl, raise_errors=True)).statuses == {JobStatus.SUCCEEDED: 1}
        await divide.enqueue(tenant="test", n=0)
        with pytest.raises(ZeroDivisionError):
            await testing.run_due(fl, raise_errors=True)


async def test_a_job_that_ends_badly_without_an_exception_comes_out_as_its_failure(database_url: str) -> None:
    app = Fairlead(settings=Settings())

    @app.job
    async def unkept() -> object:
        return object()

    async with testing.fairlead(app, database_url=database_url) as fl:
        job = await unkept.enqueue(tenant="test")
        with pytest.raises(JobFailed, match="object has no JSON form") as raised:
            await testing.run_due(fl, raise_errors=True)
    assert raised.value.job_id == job.id


async def test_a_snooze_is_no_error(app: Fairlead, database_url: str) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        await fl.enqueue("nap", tenant="test")
        report = await testing.run_due(fl, until_idle=True, raise_errors=True)
    assert report.statuses == {JobStatus.QUEUED: 2, JobStatus.SUCCEEDED: 1}


async def test_what_waits_is_brought_forward_in_its_order(app: Fairlead, database_url: str) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        times = {number: FAR - timedelta(days=number) for number in (2, 5, 1, 4, 3)}
        for number, at in times.items():
            await fl.enqueue("greet", tenant="test", payload={"name": str(number)}, scheduled_for=at)
        ran = []
        while (await testing.run_due(fl, limit=1, until_idle=True)).ran:
            done = await testing.assert_enqueued(fl, "greet")
            ran += [job.payload["name"] for job in done if job.output and job.payload["name"] not in ran]

        assert ran == ["5", "4", "3", "2", "1"]


async def test_a_job_that_always_comes_back_does_not_hang_a_test(app: Fairlead, database_url: str) -> None:
    @app.job
    async def again() -> None:
        raise Snooze(0)

    async with testing.fairlead(app, database_url=database_url) as fl:
        await fl.enqueue("again", tenant="test")
        report = await testing.run_due(fl, limit=5)

        assert (report.ran, report.statuses) == (5, {JobStatus.QUEUED: 5})


# Asserting


async def test_what_was_enqueued_is_found_by_function_tenant_and_part_of_the_payload(fl: Fairlead) -> None:
    at = UUID(int=7)
    nested = {"order": {"id": at, "lines": [1, 2]}, "express": True}
    job = await fl.enqueue("anything", tenant=given.TENANT, payload=nested)
    await fl.enqueue("anything", tenant=given.OTHER, payload={})
    tenant_id = (await job.read()).tenant_id

    for found in (
        await testing.assert_enqueued(fl, "anything", payload={"order": {"id": at}}, count=1),
        await testing.assert_enqueued(fl, "anything", tenant=given.TENANT),
        await testing.assert_enqueued(fl, "anything", tenant=tenant_id),
    ):
        assert [one.id for one in found] == [job.id]
    await testing.assert_enqueued(fl, "anything", count=2)
    await testing.assert_enqueued(fl, "greet", count=0)
    for other in ({"order": {"lines": [1]}}, {"order": {"id": "x"}}, {"express": 1}, {"more": None}):
        await testing.assert_enqueued(fl, "anything", payload=other, count=0)


async def test_a_job_function_can_be_named_by_itself(app: Fairlead, database_url: str) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        greet = app.functions["greet"]
        await greet.enqueue(tenant="test", name="Ada")
        await testing.run_due(fl)
        [job] = await testing.assert_enqueued(fl, greet, payload={"name": "Ada"})
        assert job.output == "Hello, Ada"


async def test_a_failed_assertion_names_what_was_there(fl: Fairlead) -> None:
    with pytest.raises(AssertionError, match="Nothing was enqueued"):
        await testing.assert_enqueued(fl, "greet")
    await fl.enqueue("greet", tenant=given.TENANT, payload={"name": "Ada"})
    await fl.enqueue("anything", tenant=given.OTHER, payload={"n": 1})

    with pytest.raises(AssertionError) as raised:
        await testing.assert_enqueued(fl, "greet", tenant=given.TENANT, payload={"name": "Bob"}, count=2)

    assert str(raised.value).splitlines() == [
        """Expected 2 of 'greet' for tenant 'acme' with {"name":"Bob"} in the payload, found none.""",
        "Enqueued were 2, newest first:",
        """  anything  umbrella  {"n":1}  queued""",
        """  greet  acme  {"name":"Ada"}  queued""",
    ]
    with pytest.raises(AssertionError, match="Expected 0 of 'greet', found 1"):
        await testing.assert_enqueued(fl, "greet", count=0)


async def test_a_long_list_is_cut_and_says_so(fl: Fairlead) -> None:
    await fl.enqueue_many([given.request(definition="anything") for _ in range(1001)])

    await testing.assert_enqueued(fl, "anything", count=1001)
    with pytest.raises(AssertionError, match="… and 981 more"):
        await testing.assert_enqueued(fl, "greet")


# Triggers


async def with_rule(fl: Fairlead, event_name: str, definition_key: str, payload: dict[str, Any]) -> None:
    """A rule that makes a job of an event."""
    rule = {"label": f"on {event_name}", "trigger_type": "event", "event_name": event_name}
    async with fl.transaction() as tx:
        made: dict[str, Any] = {**rule, "definition_key": definition_key, "payload_template": payload}
        await triggers.create(tx, fl.principal, "test", made)


async def test_running_what_is_due_dispatches_events_also_those_that_jobs_emit(database_url: str) -> None:
    fl = Fairlead(settings=Settings(), name="app")

    @fl.job
    async def greet(name: str) -> None:
        if name == "Ada":
            await fl.emit("user.greeted", tenant="test", data={"by": name})

    async with testing.fairlead(fl, database_url=database_url):
        await with_rule(fl, "user.joined", "greet", {"name": "{{event.name}}"})
        await with_rule(fl, "user.greeted", "greet", {"name": "somebody else"})
        await fl.emit("user.joined", tenant="test", data={"name": "Ada"})

        assert (await testing.run_due(fl)).ran == 2
        await testing.assert_enqueued(fl, greet, payload={"name": "somebody else"}, count=1)


async def test_schedules_fire_when_they_are_due_or_when_they_are_named(
    app: Fairlead, database_url: str
) -> None:
    app.cron("0 2 1 1 *", tenant="test", name="yearly", payload={"name": "{{tenant.slug}}"})(
        app.functions["greet"]
    )

    @app.every(3600, tenant="test")
    async def beat() -> None: ...

    async with testing.fairlead(app, database_url=database_url) as fl:
        assert await testing.run_due(fl) == Tick(0, {})  # no worker has synced them
        assert await testing.fire_schedules(fl) == 1
        assert await testing.fire_schedules(fl) == 0
        [job] = await testing.assert_enqueued(fl, beat, count=1)
        assert job.source == "schedule"
        assert await testing.fire_schedules(fl, "yearly") == 1
        await testing.assert_enqueued(fl, "greet", payload={"name": "test"}, count=1)
        assert (await testing.run_due(fl)).statuses == {"succeeded": 2}
        assert await testing.fire_schedules(fl, beat, "yearly") == 2
        assert (await testing.run_due(fl)).ran == 2
        with pytest.raises(TriggerUnknown, match=r"'monthly'. There are: beat, yearly"):
            await testing.fire_schedules(fl, "monthly")


async def test_a_tick_fires_what_is_due_by_itself(app: Fairlead, database_url: str) -> None:
    @app.every(3600, tenant="test")
    async def beat() -> str:
        return "now"

    async with testing.fairlead(app, database_url=database_url) as fl:
        await fl.sync_schedules()

        assert await fl.tick() == Tick(1, {JobStatus.SUCCEEDED: 1})
        assert await fl.tick() == Tick(0, {})


async def test_an_event_that_was_not_emitted_so_is_told_with_what_was(
    app: Fairlead, database_url: str
) -> None:
    async with testing.fairlead(app, database_url=database_url) as fl:
        with pytest.raises(AssertionError, match=r"found none.\nNothing was emitted."):
            await testing.assert_emitted(fl, "user.joined")
        await fl.emit("user.joined", tenant="test", data={"who": {"name": "Ada", "age": 36}})

        [event] = await testing.assert_emitted(
            fl, "user.joined", data={"who": {"name": "Ada"}}, tenant="test"
        )
        assert event.data == {"who": {"name": "Ada", "age": 36}}
        await testing.assert_emitted(fl, "user.left", count=0)
        await testing.assert_emitted(fl, "user.joined", tenant=event.tenant_id, count=1)
        for asked in ({"data": {"who": {"name": "Grace"}}}, {"tenant": "global"}, {"count": 2}):
            with pytest.raises(AssertionError) as told:
                await testing.assert_emitted(fl, "user.joined", **asked)
            assert '\n  user.joined  test  {"who":{"age":36,"name":"Ada"}}' in str(told.value)
