"""A source that consumes Kafka topics. Processes that run it share one consumer group."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from msgspec import Meta

from fairlead.errors import EngineUnavailable
from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.source import SourceOptions, parse_milliseconds, report_outage
from fairlead.model.event_source import SourceMessage

T = TypeVar("T")

ATTRIBUTES = frozenset({"topic", "key", "partition"})
# How long the consumer's thread waits for a first message before it looks for other work.
WAIT_SECONDS = 0.25
METADATA_SECONDS = 5.0
SESSION_SECONDS = 10
CRITICAL = 2

_OUTAGE: Any = ("Kafka", KafkaException)
# The group has given the partition to another member, which consumes these messages again.
_REBALANCED = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
)
_OWN = {
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.id",
}


class KafkaOptions(SourceOptions, frozen=True, kw_only=True):
    """[sources.NAME] with driver = "kafka"."""

    servers: Annotated[list[str], Meta(min_length=1)]
    topics: Annotated[list[str], Meta(min_length=1)]
    # the consumer group. By default fairlead-NAME
    group: str | None = None
    # the header with a message's id; by default, and for messages without it, topic, partition and offset
    id_header: str | None = None
    batch: Annotated[int, Meta(ge=1, le=10_000)] = 100
    # other settings of librdkafka, such as security.protocol and sasl.password
    settings: dict[str, str | int | bool] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse settings on which the promises rest."""
        if own := sorted(set(self.settings) & _OWN):
            raise ValueError(f"settings.{own[0]} cannot be set")


OPTIONS = KafkaOptions


class KafkaSource:
    """A member of a consumer group. librdkafka blocks, so one thread of its own makes all calls."""

    def __init__(
        self, consumer: Consumer, thread: ThreadPoolExecutor, options: KafkaOptions, group: str
    ) -> None:
        self._consumer = consumer
        self._thread = thread
        self._options = options
        self._group = group
        self._is_assigned = False
        # the offsets to commit next, by topic and partition
        self._offsets: dict[tuple[str, int], int] = {}
        # the last error of a connection that has not been looked into
        self.last_error: KafkaError | None = None

    def _note_assignment(self) -> None:
        """The group has admitted this consumer: the brokers answer."""
        self._is_assigned = True
        self._offsets.clear()

    async def messages(self) -> AsyncIterator[Sequence[SourceMessage]]:
        """Batches as they arrive; within a partition in its order."""
        await self._run(
            lambda: self._consumer.subscribe(
                self._options.topics, on_assign=lambda *_: self._note_assignment()
            )
        )
        while True:
            batch = await self._run(self._consume)
            if batch or self._is_assigned:
                self._is_assigned = False
                yield [self._read(one) for one in batch]

    async def acknowledge(self, messages: Sequence[SourceMessage]) -> None:
        """Commit the offsets after these messages."""
        await self._commit(messages)

    async def refuse(self, messages: Sequence[SourceMessage]) -> None:
        """Skip messages: the offsets after them are committed."""
        await self._commit(messages)

    async def postpone(self, messages: Sequence[SourceMessage], seconds: float) -> None:  # noqa: ARG002 - a partition cannot wait
        """Consume the partitions again from the first of these messages on."""
        first: dict[tuple[str, int], int] = {}
        for one in messages:
            topic, partition, offset = one.handle
            first[topic, partition] = min(offset, first.get((topic, partition), offset))

        def seek() -> None:
            held = {(one.topic, one.partition) for one in self._consumer.assignment()}
            for (topic, partition), offset in first.items():
                if (topic, partition) in held:
                    self._consumer.seek(TopicPartition(topic, partition, offset))

        await self._run(seek)

    async def describe(self) -> Mapping[str, object]:
        """The topics with their partitions."""
        found: dict[str, object] = {"group": self._group}
        for topic in self._options.topics:
            metadata = await self._run(partial(self._consumer.list_topics, topic, timeout=METADATA_SECONDS))
            one = metadata.topics[topic]
            if one.error is not None:
                raise EngineUnavailable(f"Kafka cannot be used now: topic {topic}: {one.error.str()}.")
            found[f"topic {topic}"] = f"{len(one.partitions)} partitions"
        return found

    async def _run(self, call: Callable[[], T]) -> T:
        with report_outage(*_OUTAGE):
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _consume(self) -> list[Message]:
        batch = self._consumer.consume(1, timeout=WAIT_SECONDS)
        if batch and self._options.batch > 1:
            batch += self._consumer.consume(self._options.batch - 1, timeout=0)
        if not batch and (error := self.last_error) is not None:
            self._require_answer(error)
        for one in batch:
            if (error := one.error()) is not None:
                raise KafkaException(error)
        return batch

    def _require_answer(self, error: KafkaError) -> None:
        """After an error of a connection: raise it if no broker answers."""
        self.last_error = None
        try:
            self._consumer.list_topics(self._options.topics[0], timeout=METADATA_SECONDS)
        except KafkaException as failure:
            raise KafkaException(error) from failure

    async def _commit(self, messages: Sequence[SourceMessage]) -> None:
        touched = set()
        for one in messages:
            topic, partition, offset = one.handle
            # a commit may set an offset back: messages that were refused lie among those that were stored
            self._offsets[topic, partition] = max(offset + 1, self._offsets.get((topic, partition), 0))
            touched.add((topic, partition))
        offsets = [TopicPartition(*place, self._offsets[place]) for place in touched]

        def commit() -> None:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in _REBALANCED:
                    raise

        if offsets:
            await self._run(commit)

    def _read(self, message: Message) -> SourceMessage:
        topic, partition, offset = (
            str(message.topic()),
            int(message.partition() or 0),
            int(message.offset() or 0),
        )
        _, milliseconds = message.timestamp()
        found: Any = message.headers() or []
        headers = {name: _decode(value) for name, value in found if value is not None}
        # with the time, because a topic that is deleted and made again counts from 0 again
        native = f"{topic}/{partition}/{offset}@{milliseconds}"
        return SourceMessage(
            id=headers.get(self._options.id_header or "") or native,
            data=message.value() or b"",
            headers=headers,
            attributes={"topic": topic, "partition": str(partition), "key": _decode(message.key() or b"")},
            occurred_at=parse_milliseconds(milliseconds),
            order=f"{topic}/{partition}",
            handle=(topic, partition, offset),
        )


@asynccontextmanager
async def connect(table: ConnectionTable, options: KafkaOptions) -> AsyncIterator[KafkaSource]:
    """Join the consumer group; leave it at the end."""
    group = options.group or f"fairlead-{table.name}"
    config = {
        "session.timeout.ms": SESSION_SECONDS * 1000,
        "auto.offset.reset": "earliest",
        **options.settings,
        "bootstrap.servers": ",".join(options.servers),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # its messages repeat the errors, which are reported
        "log_level": CRITICAL,
    }
    source: KafkaSource | None = None

    def note_error(error: KafkaError) -> None:
        if source is not None:
            source.last_error = error

    with ThreadPoolExecutor(1, thread_name_prefix=f"kafka-{table.name}") as thread:
        with report_outage(*_OUTAGE):
            consumer = Consumer({**config, "error_cb": note_error})
        source = KafkaSource(consumer, thread, options, group)
        try:
            yield source
        finally:
            await asyncio.get_running_loop().run_in_executor(thread, consumer.close)


def _decode(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")
