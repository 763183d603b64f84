"""A source that consumes a NATS JetStream stream. Processes that run it share one durable consumer."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import nats
import nats.errors
import nats.js.errors
import structlog
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.client import JetStreamContext

from fairlead.errors import SettingInvalid
from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.source import SourceOptions, report_outage
from fairlead.model.event_source import SourceMessage, postponed_seconds

log = structlog.get_logger(__name__)

ATTRIBUTES = frozenset({"subject", "stream"})
# How long a request waits for a first message, and then for more of its batch.
WAIT_SECONDS = 5.0
MORE_SECONDS = 0.02
CONNECT_SECONDS = 5
PING_SECONDS = 10

_OUTAGE: Any = ("NATS", nats.errors.Error, OSError, TimeoutError)


class NatsSourceOptions(SourceOptions, frozen=True, kw_only=True):
    """[sources.NAME] with driver = "nats"."""

    servers: Annotated[list[str], Meta(min_length=1)]
    stream: str
    # only messages with this subject, which may have wildcards
    subject: str = ">"
    # the durable consumer; created if it is missing. By default fairlead-NAME
    consumer: str | None = None
    # the header with a message's id; by default, and for messages without it, the stream and the sequence number
    id_header: str | None = None
    batch: Annotated[int, Meta(ge=1, le=1000)] = 100
    # the server delivers a message again if it is not acknowledged for so long
    ack_wait_seconds: Annotated[float, Meta(ge=1, le=86_400)] = 30.0
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None


OPTIONS = NatsSourceOptions


class NatsSource:
    """A durable consumer of a stream."""

    def __init__(
        self, client: Client, stream: JetStreamContext, options: NatsSourceOptions, consumer: str
    ) -> None:
        self._client = client
        self._stream = stream
        self._options = options
        self._consumer = consumer

    async def messages(self) -> AsyncIterator[Sequence[SourceMessage]]:
        """Batches as they arrive."""
        with report_outage(*_OUTAGE):
            await self._require_consumer()
            pull = await self._stream.pull_subscribe_bind(durable=self._consumer, stream=self._options.stream)
        yield []
        while True:
            with report_outage(*_OUTAGE):
                batch = await self._fetch(pull)
            if batch:
                yield [self._read(one) for one in batch]

    async def acknowledge(self, messages: Sequence[SourceMessage]) -> None:
        """Acknowledge messages, and wait until the server has read that."""
        with report_outage(*_OUTAGE):
            for one in messages:
                await one.handle.ack()
            await self._client.flush()

    async def refuse(self, messages: Sequence[SourceMessage]) -> None:
        """Terminate the delivery of messages: they stay in the stream, and this consumer gets them no more."""
        with report_outage(*_OUTAGE):
            for one in messages:
                await one.handle.term()
            await self._client.flush()

    async def postpone(self, messages: Sequence[SourceMessage], seconds: float) -> None:
        """Ask for another delivery."""
        with report_outage(*_OUTAGE):
            for one in messages:
                await one.handle.nak(delay=postponed_seconds(one, seconds))
            await self._client.flush()

    async def describe(self) -> Mapping[str, object]:
        """The stream and the consumer."""
        with report_outage(*_OUTAGE):
            stream = await self._stream.stream_info(self._options.stream)
            found: dict[str, object] = {
                "server": self._client.connected_url.netloc if self._client.connected_url else None,
                "stream": stream.config.name,
                "messages in the stream": stream.state.messages,
                "consumer": self._consumer,
            }
            try:
                consumer = await self._stream.consumer_info(self._options.stream, self._consumer)
            except nats.js.errors.NotFoundError:
                return found | {"waiting": "the consumer is created when the source first runs"}
            _check_consumer(consumer, self._consumer)
            return found | {
                "waiting": consumer.num_pending,
                "delivered and not acknowledged": consumer.num_ack_pending,
            }

    async def _require_consumer(self) -> None:
        """Find the durable consumer, or create it."""
        try:
            found = await self._stream.consumer_info(self._options.stream, self._consumer)
        except nats.js.errors.NotFoundError:
            found = await self._stream.add_consumer(
                self._options.stream,
                ConsumerConfig(
                    name=self._consumer,
                    durable_name=self._consumer,
                    filter_subject=self._options.subject,
                    deliver_policy=DeliverPolicy.ALL,
                    ack_policy=AckPolicy.EXPLICIT,
                    ack_wait=self._options.ack_wait_seconds,
                    max_deliver=-1,
                    # messages of tenants with a full queue count: they must not keep those of others back
                    max_ack_pending=-1,
                ),
            )
        _check_consumer(found, self._consumer)

    async def _fetch(self, pull: JetStreamContext.PullSubscription) -> list[Msg]:
        """What waits, or else the first message that arrives and what follows it at once."""
        try:
            batch = await pull.fetch(1, timeout=WAIT_SECONDS)
        except TimeoutError:
            return []
        if self._options.batch > 1:
            with suppress(TimeoutError):
                batch += await pull.fetch(self._options.batch - 1, timeout=MORE_SECONDS)
        return batch

    def _read(self, message: Msg) -> SourceMessage:
        metadata = message.metadata
        headers = {name: str(value) for name, value in (message.headers or {}).items()}
        # with the time, because a stream that is deleted and made again counts from 1 again
        native = f"{metadata.stream}:{metadata.sequence.stream}:{metadata.timestamp.timestamp():.6f}"
        return SourceMessage(
            id=headers.get(self._options.id_header or "") or native,
            data=message.data,
            headers=headers,
            attributes={"subject": message.subject, "stream": metadata.stream},
            occurred_at=metadata.timestamp,
            deliveries=metadata.num_delivered or 1,
            handle=message,
        )


@asynccontextmanager
async def connect(table: ConnectionTable, options: NatsSourceOptions) -> AsyncIterator[NatsSource]:
    """Connect to a server. It does not reconnect: the process that runs the source does."""
    client = Client()
    with report_outage(*_OUTAGE):
        await client.connect(
            servers=options.servers,
            name=f"fairlead source {table.name}",
            allow_reconnect=False,
            # each server is tried once or twice; without these, a minute passes before an outage is reported
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            error_cb=_note_error,
            **_read_credentials(options),
        )
    try:
        yield NatsSource(client, client.jetstream(), options, options.consumer or f"fairlead-{table.name}")
    finally:
        await client.close()


def _read_credentials(options: NatsSourceOptions) -> dict[str, Any]:
    given = {
        "user": options.user,
        "password": options.password,
        "token": options.token,
        "user_credentials": options.credentials_file,
    }
    return {name: value for name, value in given.items() if value is not None}


def _check_consumer(consumer: ConsumerInfo, name: str) -> None:
    """Refuse a consumer that may lose messages."""
    config = consumer.config
    if config.ack_policy != AckPolicy.EXPLICIT:
        raise SettingInvalid(f"The consumer {name} must have the acknowledgement policy `explicit`.")
    if (config.max_deliver or -1) > 0:
        raise SettingInvalid(
            f"The consumer {name} gives up after {config.max_deliver} deliveries, and an outage may need more: "
            "set its max_deliver to -1."
        )


async def _note_error(error: Exception) -> None:
    """Errors of the connection: the calls that fail because of them report them, too."""
    log.debug("nats_error", why=type(error).__name__)
