"""A source that consumes an Amazon SQS queue, or one with the same API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Literal

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from msgspec import Meta

from fairlead.errors import EngineUnavailable
from fairlead.integrations.configuration import ConnectionTable
from fairlead.integrations.source import SourceOptions, parse_milliseconds, report_outage
from fairlead.model.event_source import SourceMessage, postponed_seconds

ATTRIBUTES = frozenset({"queue", "group"})
# What SQS allows in one request.
MOST_MESSAGES = 10
LONGEST_WAIT_SECONDS = 20
LONGEST_POSTPONEMENT_SECONDS = 43_200
CONNECT_SECONDS = 5

_OUTAGE: Any = ("SQS", BotoCoreError, ClientError, aiohttp.ClientError, OSError, TimeoutError)
_COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


class SqsSourceOptions(SourceOptions, frozen=True, kw_only=True):
    """[sources.NAME] with driver = "sqs". Without keys, those of the environment or of the machine's role are used."""

    queue_url: str
    region: str
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    # the message attribute with a message's id; by default, and for messages without it, SQS's MessageId
    id_attribute: str | None = None
    # SQS delivers a message again if it is not deleted for so long
    visibility_timeout_seconds: Annotated[int, Meta(ge=1, le=LONGEST_POSTPONEMENT_SECONDS)] = 60
    # refused messages: left to the queue's redrive policy, or deleted
    refused: Literal["leave", "delete"] = "leave"


OPTIONS = SqsSourceOptions


class SqsSource:
    """A queue."""

    def __init__(self, client: Any, options: SqsSourceOptions) -> None:
        self._client = client
        self._options = options
        self._queue = options.queue_url.rstrip("/").rpartition("/")[2]

    async def messages(self) -> AsyncIterator[Sequence[SourceMessage]]:
        """Batches as they arrive."""
        wait = 0  # first find out whether SQS answers
        while True:
            with report_outage(*_OUTAGE):
                answer = await self._client.receive_message(
                    QueueUrl=self._options.queue_url,
                    MaxNumberOfMessages=MOST_MESSAGES,
                    WaitTimeSeconds=wait,
                    VisibilityTimeout=self._options.visibility_timeout_seconds,
                    MessageAttributeNames=["All"],
                    MessageSystemAttributeNames=[
                        "SentTimestamp",
                        "MessageGroupId",
                        "ApproximateReceiveCount",
                    ],
                )
            yield [self._read(one) for one in answer.get("Messages", [])]
            wait = LONGEST_WAIT_SECONDS

    async def acknowledge(self, messages: Sequence[SourceMessage]) -> None:
        """Delete messages."""
        await self._call("delete_message_batch", messages)

    async def refuse(self, messages: Sequence[SourceMessage]) -> None:
        """Delete messages, or leave them to the queue's redrive policy."""
        if self._options.refused == "delete":
            await self._call("delete_message_batch", messages)

    async def postpone(self, messages: Sequence[SourceMessage], seconds: float) -> None:
        """Make messages visible again after some seconds."""
        by_timeout: dict[int, list[SourceMessage]] = {}
        for one in messages:
            timeout = min(max(0, round(postponed_seconds(one, seconds))), LONGEST_POSTPONEMENT_SECONDS)
            by_timeout.setdefault(timeout, []).append(one)
        for timeout, some in by_timeout.items():
            await self._call("change_message_visibility_batch", some, VisibilityTimeout=timeout)

    async def describe(self) -> Mapping[str, object]:
        """The queue, its numbers of messages and its redrive policy."""
        with report_outage(*_OUTAGE):
            answer = await self._client.get_queue_attributes(
                QueueUrl=self._options.queue_url, AttributeNames=["All"]
            )
        found = answer.get("Attributes", {})
        waiting, taken = (int(found.get(name, 0)) for name in _COUNTS)
        return {
            "queue": self._queue,
            "waiting": waiting,
            "delivered and not deleted": taken,
            "redrive policy": found.get(
                "RedrivePolicy", "none: refused messages come again until they expire"
            ),
        }

    async def _call(self, operation: str, messages: Sequence[SourceMessage], **more: Any) -> None:
        """Do the same to all messages, as many at a time as SQS allows."""
        for start in range(0, len(messages), MOST_MESSAGES):
            entries = [
                {"Id": str(n), "ReceiptHandle": one.handle, **more}
                for n, one in enumerate(messages[start : start + MOST_MESSAGES])
            ]
            with report_outage(*_OUTAGE):
                answer = await getattr(self._client, operation)(
                    QueueUrl=self._options.queue_url, Entries=entries
                )
            if failed := answer.get("Failed"):
                raise EngineUnavailable(f"SQS refused {operation}: {failed[0].get('Code')}.")

    def _read(self, message: Mapping[str, Any]) -> SourceMessage:
        headers = {
            name: value["StringValue"]
            for name, value in message.get("MessageAttributes", {}).items()
            if "StringValue" in value
        }
        system = message.get("Attributes", {})
        group = system.get("MessageGroupId")
        return SourceMessage(
            id=headers.get(self._options.id_attribute or "") or message["MessageId"],
            data=message["Body"].encode(),
            headers=headers,
            attributes={"queue": self._queue, "group": group or ""},
            occurred_at=parse_milliseconds(int(system.get("SentTimestamp", 0))),
            # a FIFO queue delivers the messages of a group in their order
            order=group if self._queue.endswith(".fifo") else None,
            deliveries=int(system.get("ApproximateReceiveCount", 1)),
            handle=message["ReceiptHandle"],
        )


@asynccontextmanager
async def connect(_: ConnectionTable, options: SqsSourceOptions) -> AsyncIterator[SqsSource]:
    """A client of the queue. The first request connects."""
    async with AsyncExitStack() as stack:
        with report_outage(*_OUTAGE):
            client = await stack.enter_async_context(
                get_session().create_client(
                    "sqs",
                    region_name=options.region,
                    endpoint_url=options.endpoint_url,
                    aws_access_key_id=options.access_key_id,
                    aws_secret_access_key=options.secret_access_key,
                    aws_session_token=options.session_token,
                    config=AioConfig(
                        connect_timeout=CONNECT_SECONDS,
                        read_timeout=LONGEST_WAIT_SECONDS + 10,
                        # the process that runs the source tries again
                        retries={"total_max_attempts": 1},
                    ),
                )
            )
        yield SqsSource(client, options)
