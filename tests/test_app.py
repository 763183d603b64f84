"""The library's face."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from fairlead import Backoff, BatchJob, Context, Fairlead, Settings, sync, testing
from fairlead.actions import definitions
from fairlead.errors import (
    AlreadyOpen,
    DefinitionInvalid,
    InvalidInput,
    NotOpen,
    PayloadInvalid,
    SignatureInvalid,
    WrongLoop,
)
from tests import given
from tests.given import TENANT, TESTER
from tests.tables import each_case


class Order(BaseModel):
    id: int = Field(gt=0)


class Receipt(BaseModel):
    order: int
    at: datetime


async def test_a_function_becomes_a_definition_when_fairlead_opens(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job(key="sync-dropbox", timeout=60, max_attempts=7, backoff=Backoff(1, 2, 60, 0), priority=5)
    async def sync_dropbox(ctx: object, provider_id: UUID, path_prefix: str = "/") -> dict[str, Any]:
        """Fetch what is new.

        And more.
        """
        return {"seen": str(provider_id), "under": path_prefix}

    async with fl:
        job = await (await sync_dropbox.enqueue(tenant=TENANT, provider_id=UUID(int=1))).read()
        with pytest.raises(PayloadInvalid):
            await sync_dropbox.enqueue(tenant=TENANT, provider_id="x")
        async with fl.transaction() as tx:
            [made] = [one for one in await definitions.list_all(tx, TESTER) if one.key == "sync-dropbox"]

    assert job.payload == {"provider_id": str(UUID(int=1))}
    assert (job.priority, job.max_attempts) == (5, 7)
    assert (made.description, made.timeout_seconds, made.backoff) == (
        "Fetch what is new.",
        60,
        Backoff(1, 2, 60, 0),
    )
    assert await sync_dropbox(None, UUID(int=2)) == {"seen": str(UUID(int=2)), "under": "/"}


async def test_what_the_code_does_not_say_is_left_to_the_operator(settings: Settings) -> None:
    def registered() -> Fairlead:
        fl = Fairlead(settings=settings)

        @fl.job(max_attempts=2)
        async def tidy(ctx: object) -> None: ...

        return fl

    async with registered() as fl, fl.transaction() as tx:
        await definitions.patch(tx, TESTER, "tidy", {"max_running": 3, "max_attempts": 9})
    async with registered() as fl, fl.transaction() as tx:
        [tidy] = [one for one in await definitions.list_all(tx, TESTER) if one.key == "tidy"]

    assert (tidy.max_running, tidy.max_attempts) == (3, 2)
    async with registered() as fl, fl.transaction() as tx:
        [same] = [one for one in await definitions.list_all(tx, TESTER) if one.key == "tidy"]
    assert same.version == tidy.version  # opening again changes nothing


async def test_options_go_beside_the_arguments(fl: Fairlead) -> None:
    @fl.job
    async def greet(ctx: object, name: str) -> None: ...

    special = greet.options(priority=1, dedupe_key="k").options(priority=2)
    job = await (await special.enqueue(tenant=TENANT, name="Ada")).read()
    [bulk] = await fl.enqueue_many([special.with_arguments(tenant=TENANT, name="Ada")])

    assert (job.priority, job.dedupe_key) == (2, "k")
    assert (bulk.id, bulk.deduplicated) == (job.id, True)
    assert "deduplicated" in repr(bulk)


async def test_a_job_takes_and_returns_models_of_pydantic(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job
    async def charge(order: Order) -> Receipt:
        return Receipt(order=order.id, at=datetime(2026, 1, 1, tzinfo=UTC))

    async with fl:
        job = await charge.enqueue(tenant=TENANT, order=Order(id=7))
        [many] = await fl.enqueue_many([charge.with_arguments(tenant=TENANT, order=Order(id=8))])
        with pytest.raises(PayloadInvalid, match="/order/id"):
            await charge.enqueue(tenant=TENANT, order={"id": 0})
        await fl.tick()

        assert await job.result(0) == {"order": 7, "at": "2026-01-01T00:00:00Z"}
        assert await many.result(0) == {"order": 8, "at": "2026-01-01T00:00:00Z"}
        assert (await job.read()).payload == {"order": {"id": 7}}


async def test_a_tenant_that_is_there_stays_as_it_is_and_the_log_says_so(fl: Fairlead) -> None:
    await fl.add_tenant("initech", weight=3, max_running=5)

    with capture_logs() as logged:
        await fl.add_tenant("initech", exist_ok=True)
        await fl.add_tenant("initech", weight=3, exist_ok=True)
        assert logged == []
        kept = await fl.add_tenant("initech", weight=3, max_running=50, exist_ok=True)

    assert kept.max_running == 5
    assert [(one["event"], one["tenant"], one["kept"]) for one in logged] == [
        ("tenant_kept", "initech", {"max_running": 5})
    ]


def test_a_key_in_the_place_of_the_function_is_refused_with_the_right_form() -> None:
    with pytest.raises(SignatureInvalid, match=r"not 'send_mail'.*@fl\.job\(key="):
        Fairlead(settings=Settings()).job("send_mail")  # type: ignore[call-overload]


def test_two_functions_for_one_key_are_refused() -> None:
    fl = Fairlead(settings=Settings())

    @fl.job(key="one")
    def first() -> None: ...

    with pytest.raises(SignatureInvalid):

        @fl.job(key="one")
        def second() -> None: ...

    with pytest.raises(SignatureInvalid):

        @fl.job(key="not a key")
        def third() -> None: ...


async def test_a_fairlead_that_is_not_open_says_so(settings: Settings) -> None:
    with pytest.raises(NotOpen):
        await Fairlead(settings=settings).enqueue("anything", tenant=TENANT)
    with pytest.raises(NotOpen):
        sync.Fairlead(settings=settings).enqueue("anything", tenant=TENANT)


async def test_what_is_open_is_not_opened_again_until_it_is_closed(settings: Settings) -> None:
    fl = Fairlead(settings=settings)
    opened = await asyncio.gather(fl.open(), fl.open(), return_exceptions=True)
    assert [type(one) for one in opened] == [type(None), AlreadyOpen]
    with pytest.raises(AlreadyOpen, match="close it first"):
        async with fl:
            pass
    await fl.enqueue("anything", tenant=given.TENANT)  # it is as open as it was

    await fl.close()
    async with fl:
        await fl.enqueue("anything", tenant=given.TENANT)


async def test_another_event_loop_is_refused_at_once(fl: Fairlead) -> None:
    requests: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        lambda: fl.enqueue("anything", tenant=TENANT),
        lambda: fl.enqueue_many([given.request()]),
        fl.tick,
        fl.open,
        fl.close,
    ]
    for request in requests:
        with pytest.raises(WrongLoop, match=r"httpx2\.ASGITransport"):
            await asyncio.to_thread(lambda work: asyncio.run(work()), request)

    assert (await (await fl.enqueue("anything", tenant=TENANT)).read()).status == "queued"
    assert len(await testing.assert_enqueued(fl, "anything")) == 1


async def test_a_payload_is_built_from_the_arguments_of_the_function(settings: Settings) -> None:
    fl = Fairlead(settings=settings)

    @fl.job
    async def greet(ctx: Context, name: str, times: int = 1) -> str:
        return name * times

    @fl.job(batch=10)
    async def index(jobs: list[BatchJob[dict[str, Any]]]) -> None: ...

    assert greet.payload("Ada") == {"name": "Ada"}
    with pytest.raises(TypeError, match="name"):
        greet.payload(nmae="Ada")  # type: ignore[call-overload]
    with pytest.raises(SignatureInvalid, match="batch handler"):
        index.payload([])
    async with fl:
        job = await greet.enqueue(tenant=TENANT, **greet.payload("Ada", times=2))
        await testing.run_due(fl)
        assert await job.result(timeout=0) == "AdaAda"


@each_case(
    ("options", "said"),
    [
        (
            {"rate": "100 a minute"},
            r"rate must be a Rate such as Rate\(100, per_seconds=60\), not '100 a minute'",
        ),
        ({"backoff": 5}, "backoff must be a Backoff such as"),
        ({"timeout": "x"}, "timeout must be a whole number of seconds, not 'x'"),
        ({"timeout": 0}, "timeout must be 1 to 2592000"),
        ({"priority": 2_000_000}, "priority must be -1000000 to 1000000"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"durable": "yes"}, "durable must be True or False"),
        ({"retries": 3}, "the option 'retries'. Options: key, timeout, max_attempts, backoff,"),
    ],
)
def test_a_wrong_option_of_a_job_is_named_with_its_function(options: dict[str, Any], said: str) -> None:
    fl = Fairlead(settings=Settings())

    async def send_mail() -> None: ...

    with pytest.raises(DefinitionInvalid, match=f"The job 'send_mail' .*{said}") as refused:
        fl.job(**options)(send_mail)
    assert refused.value.faults[0].path == next(iter(options))
    assert fl.functions == {}


async def test_a_wrong_argument_is_refused_with_what_to_pass(fl: Fairlead) -> None:
    job = await fl.enqueue("anything", tenant=TENANT)

    with pytest.raises(InvalidInput, match="'nope' is not an approval's id"):
        await fl.approve("nope")
    with pytest.raises(InvalidInput, match="timeout must be a number of seconds, or None, not 'x'"):
        await job.result(timeout="x")  # type: ignore[arg-type]
    for call in (fl.list_jobs, fl.cancel_jobs, fl.retry_jobs):
        with pytest.raises(InvalidInput, match=r"JobFilter\(status=\[JobStatus.QUEUED\]\), not by 'queued'"):
            await call("queued")  # type: ignore[arg-type]
