"""The public API as type checkers see it: programs of users pass strictly, and wrong calls are refused."""

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

Found = list[tuple[str, int, str]]
ROOT = Path(__file__).parents[1]

HEAD = """
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any, assert_type
from uuid import UUID

from fairlead import (
    Backoff, BatchJob, BulkResult, Context, EnqueuedJob, EnqueueResult, Fairlead, Fatal, Flow, Job, JobFilter, JobPage,
    JobStatus, KeyLimit, NewJob, Rate, Secret, Settings, Snooze, StoreJobs, WorkflowRun, sync, testing,
)
from fairlead.actions.usage import UsageReport
from fairlead.integrations.sentry import report_attempt, report_batch
from fairlead.integrations.structlog import bind_batch, bind_job

fl = Fairlead(settings=Settings(database_url="postgresql://localhost/app"), actor="typed")
shop = sync.Fairlead()


@fl.job
async def greet(name: str, times: int = 1) -> str:
    return name * times


@fl.job(key="shop.sign_in", max_attempts=3, backoff=Backoff(base_seconds=1), timeout=30, rate=Rate(5, per_seconds=60))
async def sign_in(ctx: Context, user: str, password: Annotated[str, Secret()]) -> int:
    if not user:
        raise Fatal("a user is needed")
    if user == "later":
        raise Snooze(timedelta(minutes=1))
    ctx.log.info("signed in", user=user)
    await ctx.progress(50, "half")
    await ctx.enqueue(greet, payload=greet.payload(name=user))
    assert_type(ctx.job_id, UUID)
    assert_type(ctx.tenant, str)
    assert_type(ctx.attempt_no, int)
    assert_type(ctx.is_canceled, bool)
    return 5


@fl.job(batch=10, batch_wait=0.5)
async def index(jobs: list[BatchJob[dict[str, Any]]]) -> list[int]:
    return [len(job.payload) for job in jobs]


@shop.job
def send(to: str) -> str:
    return to


@shop.job(priority=5)
def pack(ctx: Context, order: int) -> None: ...
"""

RIGHT = """
@fl.every(60, payload={"n": 1})
async def beat(ctx: Context, n: int) -> str:
    return str(n)


@fl.cron("0 2 * * *", name="nightly", payload={"n": 1})
@fl.job(timeout=5)
def sweep(n: int) -> float:
    return n / 2


@shop.every(60, payload={"n": 1})
@shop.job
def tidy(n: int) -> bytes:
    return bytes(n)


fl.around_attempt(bind_job)
fl.around_batch(bind_batch)
fl.around_attempt(report_attempt)
fl.around_batch(report_batch)


@fl.around_attempt
def plain(ctx: Context) -> Iterator[None]:
    yield


@fl.around_attempt
async def asynchronous(ctx: Context) -> AsyncIterator[None]:
    yield


@fl.around_enqueue
async def pass_on(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
    return await store(requests)


@fl.cron("0 2 * * *", tenant="acme")
@fl.job
async def report() -> None: ...


async def use() -> None:
    async with fl:
        job = await greet.enqueue(tenant="acme", name="Ada")
        assert_type(job, EnqueuedJob)
        assert_type(job.id, UUID)
        stored = await job.read()
        assert_type(stored, Job)
        assert_type(stored.status, JobStatus)
        assert_type(await greet("Ada", times=2), str)
        assert_type(greet.payload("Ada", times=2), dict[str, Any])
        await sign_in.options(priority=3).enqueue(tenant="acme", **sign_in.payload(user="ada", password="x"))
        await fl.enqueue("greet", tenant="acme", payload=greet.payload(name="Ada"), delay=timedelta(hours=1), tags=["eu"])
        await fl.enqueue_many([greet.with_arguments(tenant="acme", name="Ada")])
        assert_type(await fl.list_jobs(JobFilter(status=[JobStatus.QUEUED])), JobPage)
        assert_type(sweep(4), float)


def use_sync() -> None:
    with shop:
        job = send.enqueue(tenant="acme", to="ada")
        assert_type(job, sync.EnqueuedJob)
        assert_type(job.read(), Job)
        assert_type(send("ada"), str)
        assert_type(pack.payload(order=5), dict[str, Any])
        assert_type(tidy(4), bytes)
        assert_type(send.options(priority=1).enqueue(tenant="acme", to="ada"), sync.EnqueuedJob)
        assert_type(shop.enqueue("send", tenant="acme", priority=5, delay=1.5).id, UUID)
        assert_type(shop.claim(3)[0].cancel_requested, bool)
        assert_type(shop.start("flow", tenant=UUID(int=0)).deduplicated, bool)
        assert_type(shop.usage(by="day"), UsageReport)


async def test_it(fairlead: Fairlead, run_due: Callable[..., Any]) -> None:
    await run_due()
    report = await testing.run_due(fairlead, until_idle=True)
    assert_type(report.ran, int)
    assert_type(await testing.assert_enqueued(fairlead, greet, payload={"name": "Ada"}, count=1), list[Job])
    assert_type(await testing.list_enqueued(fairlead), list[Job])
    await testing.assert_not_enqueued(fairlead, "greet", tenant="acme")
    async with testing.fairlead(fl) as opened:
        assert_type(opened, Fairlead)


def test_it_sync(fairlead: sync.Fairlead) -> None:
    assert_type(testing.assert_enqueued(fairlead, send), list[Job])
    assert_type(testing.run_due(fairlead).statuses, dict[JobStatus, int])
    with testing.fairlead(shop) as opened:
        assert_type(opened, sync.Fairlead)
"""

# Each marked line is refused. mypy takes the first parameter of any function for `ctx`, so it misses what is not given.
WRONG = """
async def use() -> None:
    await greet.enqueue(name="Ada")  # refused
    await greet.enqueue(tenant=5, name="Ada")  # refused
    greet.payload(nmae="Ada")  # refused
    greet.payload(name=5)  # refused
    greet.payload()  # refused by pyright
    sign_in.payload(user="ada")  # refused
    send.payload(too="ada")  # refused
    pack.payload(order="five")  # refused
    await greet(5)  # refused
    (await greet("Ada")).missing()  # refused
    await fl.enqueue("greet", tenant="acme", priority="high")  # refused
    await fl.enqueue("greet", tenant="acme", pririty=5)  # refused
    await fl.enqueue_many([greet])  # refused
    (await (await greet.enqueue(tenant="acme")).read()).stauts  # refused
    send.enqueue(tenant="acme").reed()  # refused
    await testing.assert_enqueued(fl, greet, counts=1)  # refused
    await testing.run_due(fl, limit="all")  # refused
    await testing.run_due(shop)  # refused
    await testing.run_due("fl")  # refused
    sweep("one")  # refused
    shop.enqueue("send", tenant="acme", priority="high")  # refused
    shop.emit("user.joined", tenant="acme", occured_at=None)  # refused
    shop.job(max_attempts="3")  # refused


@fl.job(max_attempt=3)  # refused
async def misspelled() -> None: ...


@fl.around_attempt  # refused
def takes_a_number(ctx: int) -> Iterator[None]:
    yield


@fl.around_enqueue  # refused
def is_not_async(requests: Sequence[NewJob], store: StoreJobs) -> list[EnqueueResult]:
    return []


async def handle(ctx: Context) -> None:
    ctx.progres(5)  # refused
    ctx.log.information("hello")  # refused
    raise Snooze("tomorrow")  # refused
"""


FILES = {"right.py": HEAD + RIGHT, "wrong.py": HEAD + WRONG}


def check_with_mypy(folder: Path) -> Found:
    """The errors of mypy, strict: file, line, message."""
    cache = ("--cache-dir", str(ROOT / ".mypy_cache" / "typed_api"))  # all of Fairlead, which takes a while
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *cache, *FILES]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return [(file, int(line), message) for file, line, message in found]


def check_with_pyright(folder: Path) -> Found:
    """The errors of pyright, strict: file, line, message."""
    program = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("there is no pyright in this environment: make setup installs it")
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportUnusedImport": false}')
    argv = [program, "--outputjson", "--pythonpath", sys.executable, *FILES]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout)[-300:]}")
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]


CHECKERS = {"mypy": check_with_mypy, "pyright": check_with_pyright}


# `make check` runs mypy, which takes longer, on the programs of the tests.
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_program_as_documented_passes_strictly_and_each_wrong_call_is_refused(
    checker: str, tmp_path: Path
) -> None:
    """In one run: the checkers read all of Fairlead first."""
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)

    found = CHECKERS[checker](tmp_path)

    assert [one for one in found if one[0] == "right.py"] == []
    lines = FILES["wrong.py"].splitlines()
    marks = ("# refused", f"# refused by {checker}")
    marked = {number: line for number, line in enumerate(lines, 1) if line.endswith(marks)}
    assert {line: lines[line - 1] for file, line, _ in found if file == "wrong.py"} == marked


def test_the_package_says_that_it_is_typed() -> None:
    assert files("fairlead").joinpath("py.typed").is_file()
