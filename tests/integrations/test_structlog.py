"""The job in every line of structlog that is logged while it runs."""

import io
import json
from typing import Annotated, Any

import pytest
import structlog
from structlog.contextvars import get_contextvars, merge_contextvars

from fairlead import BatchJob, Context, Fairlead, Secret, Settings, testing
from fairlead.integrations.structlog import bind_batch, bind_job
from tests.given import OTHER, TENANT

SECRET = "correct-horse-battery-staple"  # noqa: S105 - what must not be found


class LogFile:
    """A logger of structlog that writes JSON lines, and the lines."""

    def __init__(self) -> None:
        self._file = io.StringIO()
        self.logger: Any = structlog.wrap_logger(
            structlog.PrintLogger(self._file),
            processors=[merge_contextvars, structlog.processors.JSONRenderer()],
        )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines, without what the worker binds itself."""
        found = [json.loads(line) for line in self._file.getvalue().splitlines()]
        return [{name: value for name, value in line.items() if name != "worker_id"} for line in found]


@pytest.fixture
def log() -> LogFile:
    return LogFile()


@pytest.fixture
def fl(settings: Settings) -> Fairlead:
    fl = Fairlead(settings=settings)
    fl.around_attempt(bind_job)
    fl.around_batch(bind_batch)
    return fl


async def test_a_line_has_its_job_on_the_loop_and_in_a_thread_and_none_after_it(
    fl: Fairlead, log: LogFile
) -> None:
    @fl.job(max_attempts=2)
    async def on_loop() -> None:
        log.logger.info("works")
        raise ValueError("again")

    @fl.job
    def in_thread(ctx: Context) -> None:
        log.logger.info("works", tenant="its own")

    async with fl:
        first = await on_loop.enqueue(tenant=TENANT)
        second = await in_thread.options(correlation_id="request-7").enqueue(tenant=OTHER)
        await testing.run_due(fl, until_idle=True)
    log.logger.info("after")

    lines = {(line.get("definition_key"), line.get("attempt_no")): line for line in log.lines}
    assert lines == {
        ("on_loop", number): {
            "event": "works",
            "job_id": str(first.id),
            "tenant": TENANT,
            "definition_key": "on_loop",
            "attempt_no": number,
        }
        for number in (1, 2)
    } | {
        ("in_thread", 1): {
            "event": "works",
            "job_id": str(second.id),
            "tenant": "its own",  # what the line says itself comes first
            "definition_key": "in_thread",
            "attempt_no": 1,
            "correlation_id": "request-7",
        },
        (None, None): {"event": "after"},
    }
    assert get_contextvars() == {}


async def test_a_correlation_that_has_a_secret_is_masked(fl: Fairlead, log: LogFile) -> None:
    @fl.job
    async def sign_in(password: Annotated[str, Secret()]) -> None:
        log.logger.info("works")

    async with fl:
        await sign_in.options(correlation_id=f"login {SECRET}").enqueue(tenant=TENANT, password=SECRET)
        await testing.run_due(fl, raise_errors=True)

    [line] = log.lines
    assert line["correlation_id"] == "login [redacted]"


@pytest.mark.parametrize(
    ("tenants", "bound"), [((TENANT, TENANT), {"tenant": TENANT}), ((TENANT, OTHER), {})]
)
async def test_a_line_of_a_batch_has_its_definition_and_its_size(
    fl: Fairlead, log: LogFile, tenants: tuple[str, ...], bound: dict[str, str]
) -> None:
    @fl.job(batch=2, batch_wait=60, batch_across_tenants=True)
    async def index(jobs: list[BatchJob[dict[str, Any]]]) -> None:
        log.logger.info("works")

    async with fl:
        for tenant in tenants:
            await fl.enqueue("index", tenant=tenant, payload={})
        await testing.run_due(fl, raise_errors=True)

    assert log.lines == [{"event": "works", "definition_key": "index", "jobs": 2, **bound}]
