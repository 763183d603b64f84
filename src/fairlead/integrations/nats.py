"""NATS JetStream as a delivery engine.

Each attempt is one message in a work-queue stream, on a subject of its own: `<queue>.<Handover.id>`. So the stream itself
tells which attempts it still has, the bridge needs no memory of sequence numbers, and a canceled attempt can be removed.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from fairlead.errors import EngineUnavailable
from fairlead.integrations.configuration import ConnectionTable, read_options
from fairlead.integrations.engine import Engine, Handover, Report
from fairlead.integrations.lost_attempts import LostAttempts
from fairlead.integrations.result_messages import BadMessages, read_result

log = structlog.get_logger(__name__)

# How many publications wait for their acknowledgement at the same time.
MOST_PENDING = 500
MOST_REPORTS = 500
# Without any result for this long, check that the consumer still exists.
IDLE_SECONDS = 5.0
# What the server's headers take beside the message, at most.
HEADER_BYTES = 512
# Error codes of the server: the message exceeds the stream's limit; the subject has a message already.
TOO_LARGE, SUBJECT_HAS_ONE = 10054, 10077


class NatsEngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a table with `driver = "nats"`."""

    servers: Annotated[list[str], msgspec.Meta(min_length=1)]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None
    ca_file: str | None = None
    stream: str = "FAIRLEAD"
    subjects: Annotated[list[str], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["fairlead.jobs.>"]
    )
    results_stream: str = "FAIRLEAD-RESULTS"
    results_subject: str = "fairlead.results"
    results_consumer: str = "fairlead-bridge"
    cancel_subject: str = "fairlead.cancel"
    create_stream: bool = True
    storage: Literal["file", "memory"] = "file"
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    max_age_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    max_bytes: Annotated[int, msgspec.Meta(ge=-1)] = -1
    duplicate_window_seconds: Annotated[float, msgspec.Meta(ge=1)] = 120.0
    # a bridge stores a result within this time, or the server delivers it again: to another one, if this one died
    redeliver_after_seconds: Annotated[float, msgspec.Meta(ge=1)] = 10.0
    lost_after_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0


OPTIONS = NatsEngineOptions


@asynccontextmanager
async def connect(table: ConnectionTable) -> AsyncIterator[Engine]:
    """Connect to NATS, and create or verify its streams."""
    options = read_options(table, NatsEngineOptions)
    client = Client()
    engine = NatsEngine(table, options, client)
    try:
        await _open(client, options, table)
        await engine.prepare()
        yield engine
    finally:
        await _close(client, table)


async def _open(client: Client, options: NatsEngineOptions, table: ConnectionTable) -> None:
    tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else None

    async def note(error: Exception) -> None:  # the client awaits it
        log.warning("nats_error", engine=table.name, why=type(error).__name__)

    try:
        # the client itself would try for ever
        async with asyncio.timeout(options.timeout_seconds):
            await client.connect(
                options.servers,
                name=f"fairlead bridge {table.name}",
                error_cb=note,
                user=options.user,
                password=options.password,
                token=options.token,
                user_credentials=options.credentials_file,
                tls=tls,
                max_reconnect_attempts=-1,
                reconnect_time_wait=1,
            )
    except (NatsError, OSError, TimeoutError) as error:
        raise _unavailable(table, error) from error


async def _close(client: Client, table: ConnectionTable) -> None:
    try:
        await client.close()
    except (NatsError, OSError, RuntimeError) as error:
        # it writes what it still has, and the connection may have been lost
        log.debug("nats_not_closed", engine=table.name, why=repr(error))


def _unavailable(table: ConnectionTable, error: BaseException) -> EngineUnavailable:
    why = str(error) or type(error).__name__
    return EngineUnavailable(f"{table.where}: NATS does not answer: {why}")


class NatsEngine:
    """A connection to NATS."""

    def __init__(self, table: ConnectionTable, options: NatsEngineOptions, client: Client) -> None:
        self._table = table
        self._options = options
        self._client = client
        self._js: JetStreamContext = client.jetstream(timeout=options.timeout_seconds)
        self._lost = LostAttempts("NATS", after_seconds=options.lost_after_seconds)
        self._bad = BadMessages(table.name)

    # Streams

    async def prepare(self) -> None:
        """Create the streams if they do not exist, and raise SettingInvalid if they are of another kind."""
        options = self._options
        try:
            await self._prepare_stream("stream", options.stream, options.subjects)
            await self._prepare_stream("results_stream", options.results_stream, [options.results_subject])
            await self._js.add_consumer(options.results_stream, self._describe_consumer())
        except (NatsError, OSError, TimeoutError) as error:
            raise _unavailable(self._table, error) from error

    async def _prepare_stream(self, option: str, name: str, subjects: list[str]) -> None:
        try:
            config = (await self._js.stream_info(name)).config
        except NotFoundError:
            if not self._options.create_stream:
                raise self._table.refuse(
                    option, f"names {name}, which does not exist: create it, or set create_stream = true"
                ) from None
            config = await self._create_stream(option, name, subjects)
        if config.retention != RetentionPolicy.WORK_QUEUE:
            raise self._table.refuse(option, f"names {name}, which must have the retention workqueue")
        missing = [one for one in subjects if not _is_covered(one, config.subjects or [])]
        if missing:
            raise self._table.refuse(option, f"names {name}, which lacks the subject {missing[0]}")

    async def _create_stream(self, option: str, name: str, subjects: list[str]) -> StreamConfig:
        options = self._options
        config = StreamConfig(
            name=name,
            subjects=subjects,
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType(options.storage),
            num_replicas=options.replicas,
            max_age=options.max_age_seconds,
            max_bytes=options.max_bytes,
            # a full stream refuses new messages, and the bridge tries again
            discard=DiscardPolicy.NEW,
            duplicate_window=options.duplicate_window_seconds,
        )
        if option == "stream":
            # one message for each attempt, however often it is published
            config.max_msgs_per_subject = 1
            config.discard_new_per_subject = True
        return (await self._js.add_stream(config)).config

    # Delivery

    async def hand_over(self, handovers: Sequence[Handover]) -> dict[str, str]:
        """Publish attempts, many at the same time."""
        refused: dict[str, str] = {}
        for start in range(0, len(handovers), MOST_PENDING):
            some = handovers[start : start + MOST_PENDING]
            answers = await asyncio.gather(*map(self._publish, some), return_exceptions=True)
            for one, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException):
                    if not isinstance(answer, NatsError | OSError | TimeoutError):
                        raise answer
                    raise _unavailable(self._table, answer) from answer
                if answer is not None:
                    refused[one.id] = answer
        return refused

    async def _publish(self, handover: Handover) -> str | None:
        """Publish an attempt; why it can never be delivered, if so."""
        message = handover.encode_message()
        if why := self._find_obstacle(handover, message):
            return why
        try:
            await self._js.publish(
                _subject(handover),
                message,
                stream=self._options.stream,
                headers={"Nats-Msg-Id": handover.id},
            )
        except APIError as error:
            if error.err_code == SUBJECT_HAS_ONE and "per subject" in (error.description or ""):
                return None
            if error.err_code == TOO_LARGE:
                return f"Its message has {len(message)} bytes; the stream {self._options.stream} takes fewer."
            raise
        return None

    def _find_obstacle(self, handover: Handover, message: bytes) -> str | None:
        most = self._client.max_payload - HEADER_BYTES
        if self._client.is_connected and len(message) > most:
            return f"Its message has {len(message)} bytes; this NATS server takes at most {most}."
        if not _is_subject(handover.queue):
            return f"Its queue {handover.queue!r} is not a NATS subject."
        if not _is_covered(_subject(handover), self._options.subjects):
            return (
                f"Its queue {handover.queue!r} is not covered by the subjects of the stream "
                f"{self._options.stream}: {', '.join(self._options.subjects)}."
            )
        return None

    # Results

    async def results(self) -> AsyncIterator[list[Report]]:
        """Results of workers, from a durable consumer that all bridges share."""
        try:
            await self.prepare()
            subscription = await self._subscribe()
            try:
                while not self._client.is_closed:
                    if reports := await self._receive(subscription):
                        yield reports
            finally:
                if self._client.is_connected:
                    await subscription.unsubscribe()
        except (NatsError, OSError, TimeoutError) as error:
            raise _unavailable(self._table, error) from error

    async def _subscribe(self) -> JetStreamContext.PushSubscription:
        return await self._js.subscribe_bind(
            stream=self._options.results_stream,
            consumer=self._options.results_consumer,
            config=self._describe_consumer(),
            manual_ack=True,
        )

    def _describe_consumer(self) -> ConsumerConfig:
        options = self._options
        return ConsumerConfig(
            durable_name=options.results_consumer,
            deliver_group=options.results_consumer,
            # fixed, so that bridges that start together create the same consumer
            deliver_subject=f"_INBOX.fairlead.{options.results_stream}.{options.results_consumer}",
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=options.redeliver_after_seconds,
            max_ack_pending=MOST_REPORTS * 4,
            filter_subject=options.results_subject,
        )

    async def _receive(self, subscription: JetStreamContext.PushSubscription) -> list[Report]:
        """What has arrived. If nothing has for a while, check that the consumer is still there."""
        try:
            messages = [await subscription.next_msg(timeout=IDLE_SECONDS)]
        except NatsTimeout:
            await self._js.consumer_info(self._options.results_stream, self._options.results_consumer)
            return []
        while subscription.pending_msgs and len(messages) < MOST_REPORTS:
            messages.append(await subscription.next_msg(timeout=IDLE_SECONDS))
        reports = []
        for message in messages:
            report = read_result(message.data, self._bad, message.ack)
            if report is None:
                await message.term()
            else:
                reports.append(report)
        return reports

    # Lost and canceled attempts

    async def find_lost(self, handovers: Sequence[Handover]) -> list[Report]:
        """Attempts whose messages the stream no longer has, although every result that came before was stored.

        A worker publishes its result before it acknowledges its message. So once the bridges have acknowledged all results
        that the results stream had when the message was missing first, there is none.
        """
        try:
            missing = await self._find_missing(handovers)
            if not missing:
                self._lost.note(handovers, ())
                return []
            results = await self._js.stream_info(self._options.results_stream)
            due = self._lost.note(handovers, missing.keys(), results.state.last_seq)
            stored = await self._find_stored_results(results.state.last_seq) if due else 0
        except (NatsError, OSError, TimeoutError) as error:
            raise _unavailable(self._table, error) from error
        return self._lost.report([missing[one] for one, mark in due.items() if stored >= mark])

    async def _find_missing(self, handovers: Sequence[Handover]) -> dict[str, Handover]:
        """Those whose subject has no message: first by the stream's list of subjects, then each by itself."""
        present: set[str] = set()
        for queue in {one.queue for one in handovers if _is_subject(one.queue)}:
            info = await self._js.stream_info(self._options.stream, subjects_filter=f"{queue}.*")
            present.update(info.state.subjects or {})
        absent = [one for one in handovers if _subject(one) not in present]
        found = await asyncio.gather(*map(self._find_sequence, absent))
        return {one.id: one for one, sequence in zip(absent, found, strict=True) if sequence is None}

    async def _find_stored_results(self, last: int) -> int:
        """Up to which sequence all results are acknowledged."""
        info = await self._js.consumer_info(self._options.results_stream, self._options.results_consumer)
        if not info.num_pending and not info.num_ack_pending:
            return last
        return info.ack_floor.stream_seq if info.ack_floor else 0

    async def _find_sequence(self, handover: Handover) -> int | None:
        try:
            message = await self._js.get_last_msg(self._options.stream, _subject(handover))
        except NotFoundError:
            return None
        return message.seq

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        """Remove messages that no consumer has delivered, and those whose time is up; tell the workers of the others.

        A message is undelivered if its consumers had not come to it even after it was removed.
        """
        try:
            consumers = await self._list_consumers()
            sequences = await asyncio.gather(*map(self._find_sequence, handovers))
            present = [(one, at) for one, at in zip(handovers, sequences, strict=True) if at is not None]
            waiting = [(one, at) for one, at in present if not _is_delivered(one, at, consumers)]
            removed = {one.id for one, _ in waiting}
            overdue = [one for one, _ in present if one.id not in removed and _is_overdue(one)]
            await asyncio.gather(*(self._remove(one) for one in [*(one for one, _ in waiting), *overdue]))
            consumers = await self._list_consumers()
            untouched = {one.id for one, at in waiting if not _is_delivered(one, at, consumers)}
            await self._signal([one for one in handovers if one.id not in untouched])
        except (NatsError, OSError, TimeoutError) as error:
            raise _unavailable(self._table, error) from error
        return untouched

    async def _remove(self, handover: Handover) -> None:
        await self._js.purge_stream(self._options.stream, subject=_subject(handover))

    async def _signal(self, handovers: Collection[Handover]) -> None:
        """Tell workers that listen to stop. It is not stored: a worker also learns it from its heartbeats over HTTP."""
        for one in handovers:
            body: dict[str, Any] = {"job_id": one.lease.job_id, "attempt_no": one.lease.attempt_no}
            await self._client.publish(f"{self._options.cancel_subject}.{one.id}", msgspec.json.encode(body))

    async def _list_consumers(self) -> list[ConsumerInfo]:
        found: list[ConsumerInfo] = []
        while page := await self._js.consumers_info(self._options.stream, len(found)):
            found.extend(page)
        return found


def _subject(handover: Handover) -> str:
    return f"{handover.queue}.{handover.id}"


def _is_subject(text: str) -> bool:
    return (
        text.isprintable()
        and not any(sign in text for sign in " *>")
        and all(text.split("."))
        and not text.startswith("$")
    )


def _is_covered(subject: str, patterns: Collection[str]) -> bool:
    """Whether one of these subjects of a stream covers a subject, which may itself have wildcards."""
    return any(_covers(pattern.split("."), subject.split(".")) for pattern in patterns)


def _covers(pattern: list[str], subject: list[str]) -> bool:
    for index, part in enumerate(pattern):
        if part == ">":
            return len(subject) > index
        if index >= len(subject) or (part != subject[index] and (part != "*" or subject[index] == ">")):
            return False
    return len(pattern) == len(subject)


def _is_delivered(handover: Handover, sequence: int, consumers: Sequence[ConsumerInfo]) -> bool:
    """Whether a consumer of this subject has come to this message."""
    subject = _subject(handover)
    return any(
        info.delivered is not None and info.delivered.stream_seq >= sequence
        for info in consumers
        if _is_covered(subject, _filters(info.config))
    )


def _filters(config: ConsumerConfig | None) -> list[str]:
    if config is None:
        return [">"]
    return config.filter_subjects or [config.filter_subject or ">"]


def _is_overdue(handover: Handover) -> bool:
    return datetime.now(UTC) >= handover.deadline
