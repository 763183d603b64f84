"""Sources with real brokers: each message becomes one event, whatever fails in between."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import sources
from fairlead.integrations.source import ConfiguredSource
from fairlead.model.event_source import EventSource, SourceState
from fairlead.runtime import event_sources
from fairlead.runtime.event_sources import run_sources
from tests import given
from tests.acting import act
from tests.processes import FAIRLEAD, started
from tests.source_brokers import (
    Broker,
    KafkaBroker,
    NatsBroker,
    SqsBroker,
    find_reason_to_skip,
    make_broker,
    source_of,
    write_toml,
)
from tests.waiting import SECONDS, until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """The brokers that the tests of this module have needed so far."""
    brokers: dict[str, Any] = {}
    with ExitStack() as stack:

        def get(driver: str) -> Any:
            if driver not in brokers:
                if reason := find_reason_to_skip(driver):
                    pytest.skip(reason)
                brokers[driver] = make_broker(driver, tmp_path_factory.mktemp(driver))
                brokers[driver].start()
                stack.callback(brokers[driver].close)
            return brokers[driver]

        yield {"get": get}
        if "sqs" in brokers:
            await brokers["sqs"].aclose()


@pytest.fixture(
    params=["nats", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("sqs", "kafka"))]
)
async def broker(request: pytest.FixtureRequest, running: dict[str, Any]) -> Broker:
    found: Broker = running["get"](request.param)
    await found.set_up()
    return found


@pytest.fixture
async def kafka(running: dict[str, Any]) -> KafkaBroker:
    found: KafkaBroker = running["get"]("kafka")
    await found.set_up()
    return found


@pytest.fixture
async def nats_broker(running: dict[str, Any]) -> NatsBroker:
    found: NatsBroker = running["get"]("nats")
    await found.set_up()
    return found


@pytest.fixture
async def sqs(running: dict[str, Any]) -> SqsBroker:
    found: SqsBroker = running["get"]("sqs")
    await found.set_up()
    return found


@pytest.fixture
def connect_seconds() -> int:
    return 30


@pytest.fixture
def settings(database_url: str, connect_seconds: int) -> Settings:
    return Settings(database_url=database_url, connect_timeout_seconds=connect_seconds)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_sources, "REPORT_SECONDS", 0.2)
    monkeypatch.setattr(event_sources, "POSTPONE_SECONDS", 1.0)


@asynccontextmanager
async def consuming(fl: Fairlead, *found: ConfiguredSource) -> AsyncIterator[None]:
    stop = asyncio.Event()
    running = asyncio.create_task(run_sources(fl.database, fl.catalog, found, stop))
    try:
        yield
    finally:
        stop.set()
        await running


def orders(numbers: Sequence[int]) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def numbers(url: str) -> list[int]:
    """The numbers in the events, in the order in which they were stored."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select data -> 'n' from fairlead.events order by recorded_at, id"
        ).fetchall()
    return [number for (number,) in rows]


async def look(fl: Fairlead) -> EventSource:
    [found] = await act(fl, sources.list_sources, fl.principal)
    return found


async def has_state(fl: Fairlead, state: SourceState) -> bool:
    return [one.state for one in await act(fl, sources.list_sources, fl.principal)] == [state]


async def wait_for_events(fl: Fairlead, count: int) -> None:
    async def are_there() -> bool:
        return len(numbers(str(fl.settings.database_url))) >= count

    await until(are_there, f"{count} events")


async def wait_until_acknowledged(broker: Broker) -> None:
    async def is_empty() -> bool:
        return await broker.count_left() == 0

    await until(is_empty, "the broker to have no message left")


async def test_each_message_becomes_one_event(fl: Fairlead, broker: Broker, database_url: str) -> None:
    await broker.publish(orders(range(25)))
    async with consuming(fl, source_of(broker, **broker.patient)):
        await wait_for_events(fl, 25)
        await broker.publish(orders(range(25, 30)))
        await wait_for_events(fl, 30)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(30))
    found = await look(fl)
    assert (found.messages, found.duplicates, found.refused) == (30, 0, 0)
    assert (found.driver, found.tenant, found.event) == (broker.driver, "acme", "order.placed")
    assert found.state is SourceState.RUNNING
    for event in await given.all_events(fl):
        assert event.created_by == "source:orders"
        assert event.occurred_at <= event.recorded_at + timedelta(seconds=1)


@pytest.mark.thorough
async def test_a_message_that_is_published_twice_with_the_same_id_becomes_one_event(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    ids = [{"order-id": f"order-{n}"} for n in range(10)]
    await broker.publish(orders(range(10)), ids)
    async with consuming(fl, source_of(broker, **{broker.ids: "order-id"}, **broker.patient)):
        await wait_for_events(fl, 10)
        await broker.publish([*orders(range(10)), *orders([10])], [*ids, {"order-id": "order-10"}])
        await wait_for_events(fl, 11)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(11))
    assert (await look(fl)).duplicates == 10


@pytest.mark.thorough
async def test_a_process_that_is_killed_between_commit_and_acknowledgement_stores_nothing_twice(
    fl: Fairlead, broker: Broker, database_url: str, tmp_path: Path
) -> None:
    toml = write_toml(broker, tmp_path / "fairlead.toml")
    await broker.publish(orders(range(8)))
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_CONFIG": str(toml)}
    killing = [sys.executable, "-m", "tests.integrations.killed_before_acknowledging"]
    with started(killing, env=env, cwd=ROOT) as process:
        said = await asyncio.to_thread(lambda: process.communicate(timeout=SECONDS)[0])
        assert process.returncode == -signal.SIGKILL, said
    stored = len(numbers(database_url))
    assert stored > 0
    assert await broker.count_left() == 8
    async with consuming(fl, source_of(broker)):
        await wait_for_events(fl, 8)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(8))
    found = await look(fl)
    assert found.messages == 8
    assert (
        found.duplicates >= stored
    )  # more if this process was so slow that messages were delivered once more


@pytest.mark.thorough
@pytest.mark.parametrize("connect_seconds", [3], ids=[""])
async def test_an_outage_of_the_database_loses_nothing(
    fl: Fairlead, broker: Broker, database_url: str, server: str
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    async with consuming(fl, source_of(broker)):
        await broker.publish(orders(range(3)))
        await wait_for_events(fl, 3)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"alter database {name} with allow_connections false")
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name]
            )
            await broker.publish(orders(range(3, 8)))
            await wait_for_an_outage(fl)
            connection.execute(f"alter database {name} with allow_connections true")
        await wait_for_events(fl, 8)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(8))


async def wait_for_an_outage(fl: Fairlead) -> None:
    """Until a statement of this process has failed."""

    async def fails() -> bool:
        try:
            await fl.database.transact(lambda tx: tx.values("select 1"))
        except Exception:  # noqa: BLE001 - any failure will do
            return True
        return False

    await until(fails, "the database to be away")


@pytest.mark.thorough
async def test_an_outage_of_the_broker_is_reported_and_ridden_out(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    async with consuming(fl, source_of(broker)):
        await broker.publish(orders(range(3)))
        await wait_for_events(fl, 3)
        await broker.go_away()
        try:
            await until(lambda: has_state(fl, SourceState.FAILING), "the outage to be reported")
            failing = await look(fl)
        finally:
            await broker.come_back()
        await until(lambda: has_state(fl, SourceState.RUNNING), "the source to have recovered")
        await broker.publish(orders(range(3, 8)))
        await wait_for_events(fl, 8)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(8))
    assert failing.failing_since is not None
    assert "cannot be used now" in str(failing.last_error)


POISON = {
    b"not json": "payload_not_json",
    b"[1, 2]": "event_invalid",
    b'{"a": "\\u0000"}': "payload_not_json",
    b'{"a":' * 100 + b"1" + b"}" * 100: "payload_too_deep",
    b'{"a":"' + b"x" * 270_000 + b'"}': "payload_too_large",
}


@pytest.mark.thorough
async def test_messages_that_can_never_become_events_block_nothing(
    fl: Fairlead, broker: Broker, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    poison = [body for body in POISON if broker.driver != "sqs" or len(body) < 262_144]
    # several of the same kind have different bodies, so that SQS does not take them for one
    await broker.publish([*poison, *orders(range(5))])
    more = {**broker.patient, **({"refused": "delete"} if broker.driver == "sqs" else {})}
    async with consuming(fl, source_of(broker, **more)):
        await wait_for_events(fl, 5)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == list(range(5))
    found = await look(fl)
    assert (found.messages, found.refused) == (5, len(poison))
    logged = capsys.readouterr().out
    for body in poison:
        assert POISON[body] in logged
    assert "not json" not in logged
    assert "xxxx" not in logged


@pytest.mark.thorough
async def test_a_message_may_name_its_tenant_and_its_event(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    whose = [{"tenant": name} for name in ("acme", "umbrella", "nobody", "global", "acme")]
    await broker.publish(orders(range(5)), whose)
    more = {**broker.patient, **({"refused": "delete"} if broker.driver == "sqs" else {})}
    attribute = {"nats": "stream", "sqs": "queue", "kafka": "topic"}[broker.driver]
    chosen = source_of(
        broker, tenant=None, tenant_from="header:tenant", event=f"order.{{{attribute}}}", **more
    )
    async with consuming(fl, chosen):
        await wait_for_events(fl, 3)
        await wait_until_acknowledged(broker)
    events = await given.all_events(fl)
    assert {(event.tenant, event.data["n"]) for event in events} == {
        ("acme", 0),
        ("umbrella", 1),
        ("acme", 4),
    }
    assert all(event.name.startswith(f"order.{attribute}") for event in events)
    state = await look(fl)
    assert (state.refused, state.last_refusal, state.tenant) == (2, "tenant_unknown", None)


@pytest.mark.thorough
async def test_two_processes_share_the_messages(
    fl: Fairlead, broker: Broker, database_url: str, tmp_path: Path
) -> None:
    toml = write_toml(broker, tmp_path / "fairlead.toml")
    env = {"FAIRLEAD_DATABASE_URL": database_url, "FAIRLEAD_CONFIG": str(toml)}
    argv = [FAIRLEAD, "sources", "run"]
    await broker.publish(orders(range(40)))
    with started(argv, env=env, cwd=ROOT) as one, started(argv, env=env, cwd=ROOT) as other:
        for process in (one, other):  # before, a signal would kill it
            assert process.stdout is not None
            said = await asyncio.to_thread(process.stdout.readline)
            assert said == "consuming from orders; Ctrl-C stops\n"
        await broker.publish(orders(range(40, 80)))
        await wait_for_events(fl, 80)
        one.send_signal(signal.SIGTERM)
        await broker.publish(orders(range(80, 90)))
        await wait_for_events(fl, 90)
        await wait_until_acknowledged(broker)
        other.send_signal(signal.SIGTERM)
        for process in (one, other):
            assert process.stdout is not None
            said = await asyncio.to_thread(process.stdout.read)
            assert await asyncio.to_thread(process.wait, SECONDS) == 0, said
            assert said.endswith("stopped\n")
    assert sorted(numbers(database_url)) == list(range(90))
    assert (await look(fl)).messages == 90


@pytest.mark.thorough
async def test_a_paused_source_leaves_its_messages_in_the_broker(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    async with consuming(fl, source_of(broker)):
        await broker.publish(orders([0]))
        await wait_for_events(fl, 1)
        await act(fl, sources.pause, fl.principal, "orders", note="maintenance")
        await broker.publish(orders([1, 2]))
        seen = (await look(fl)).seen_at
        await until(lambda: is_seen_after(fl, seen), "a report of the paused source")
        assert numbers(database_url) == [0]
        found = await look(fl)
        assert (found.state, found.paused_by, found.note) == (SourceState.PAUSED, "tester", "maintenance")
        await act(fl, sources.resume, fl.principal, "orders")
        await wait_for_events(fl, 3)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == [0, 1, 2]


async def is_seen_after(fl: Fairlead, then: datetime) -> bool:
    return (await look(fl)).seen_at > then


@pytest.mark.thorough
async def test_messages_of_a_tenant_with_a_full_queue_wait(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    await fl.set_quotas("acme", queued_jobs=1)
    job = await fl.enqueue("anything", tenant="acme")
    whose = [{"tenant": name} for name in ("umbrella", "acme", "acme")]
    await broker.publish(orders(range(3)), whose)
    async with consuming(fl, source_of(broker, tenant=None, tenant_from="header:tenant")):
        await wait_for_events(fl, 1)
        assert await broker.count_left() > 0
        await fl.cancel(job.id)
        await wait_for_events(fl, 3)
        await wait_until_acknowledged(broker)
    assert sorted(numbers(database_url)) == [0, 1, 2]
    assert (await look(fl)).refused == 0


@pytest.mark.thorough
async def test_many_messages_of_a_tenant_with_a_full_queue_do_not_keep_others_in_nats(
    fl: Fairlead, nats_broker: NatsBroker
) -> None:
    """NATS delivers no more to a consumer once so many messages of it are not acknowledged."""
    await fl.set_quotas("acme", queued_jobs=1)
    await fl.enqueue("anything", tenant="acme")
    await nats_broker.publish(orders(range(1201)), [{"tenant": "acme"}] * 1200 + [{"tenant": "umbrella"}])
    async with consuming(fl, source_of(nats_broker, tenant=None, tenant_from="header:tenant")):
        await wait_for_events(fl, 1)


@pytest.mark.thorough
async def test_the_messages_of_a_partition_become_events_in_their_order(
    fl: Fairlead, kafka: KafkaBroker, database_url: str
) -> None:
    keys = [f"key-{n % 5}" for n in range(300)]
    await kafka.publish(orders(range(300)), keys=keys)
    one = source_of(kafka, batch=7)
    async with consuming(fl, one), consuming(fl, one):
        await wait_for_events(fl, 300)
        await wait_until_acknowledged(kafka)
    stored = numbers(database_url)
    assert sorted(stored) == list(range(300))
    for key in range(5):
        assert [n for n in stored if n % 5 == key] == list(range(key, 300, 5))


@pytest.mark.thorough
async def test_a_stream_that_is_made_again_has_new_messages(
    fl: Fairlead, nats_broker: NatsBroker, database_url: str
) -> None:
    await nats_broker.publish(orders([0]))
    async with consuming(fl, source_of(nats_broker)):
        await wait_for_events(fl, 1)
    await nats_broker.make_again()
    await nats_broker.publish(orders([1]))
    async with consuming(fl, source_of(nats_broker)):
        await wait_for_events(fl, 2)
    assert numbers(database_url) == [0, 1]


@pytest.mark.thorough
async def test_a_consumer_that_gives_up_is_refused(fl: Fairlead, nats_broker: NatsBroker) -> None:
    await nats_broker.add_consumer("fairlead-orders", max_deliver=3)
    async with consuming(fl, source_of(nats_broker)):
        await until(lambda: has_state(fl, SourceState.FAILING), "the refusal to be reported")
    assert "gives up after 3 deliveries" in str((await look(fl)).last_error)


@pytest.mark.thorough
async def test_refused_messages_are_left_to_the_redrive_policy(
    fl: Fairlead, sqs: SqsBroker, database_url: str
) -> None:
    await sqs.publish([b"not json", *orders([0])])
    async with consuming(fl, source_of(sqs)):
        await wait_for_events(fl, 1)
    assert await sqs.count_left() == 1


@pytest.mark.thorough
async def test_a_source_of_an_unknown_tenant_refuses_no_message(
    fl: Fairlead, broker: Broker, database_url: str
) -> None:
    await broker.publish(orders([0]))
    async with consuming(fl, source_of(broker, tenant="later")):
        await fl.add_tenant("later", name="Later")
        await wait_for_events(fl, 1)
    assert (await look(fl)).refused == 0
