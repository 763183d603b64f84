"""Amazon SQS, or a service with the same interface, as a delivery engine.

SQS does not tell what became of one message. It cannot find lost attempts or take messages back: the time limit of each
attempt covers both, and workers learn of a cancel from their heartbeats over HTTP.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

import msgspec
import structlog
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError

from fairlead.errors import EngineUnavailable
from fairlead.integrations.configuration import ConnectionTable, read_options
from fairlead.integrations.engine import Engine, Handover, Report
from fairlead.integrations.result_messages import BadMessages, read_result

log = structlog.get_logger(__name__)

MOST_IN_A_BATCH = 10
# How many batches are sent at the same time.
MOST_PENDING = 10
# Receivers of results, each with a long poll.
RECEIVERS = 3
TRIES = 3
# XML cannot hold these two, which JSON may have in a string.
_UNSENDABLE = str.maketrans({"\ufffe": "\\ufffe", "\uffff": "\\uffff"})
_NO_QUEUE = {"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"}
# What SQS says of one message that it will never take.
_NEVER = {"InvalidParameterValue", "InvalidMessageContents", "BatchRequestTooLong", "InvalidParameter"}


class SqsEngineOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a table with `driver = "sqs"`. Without keys, the AWS credentials of the environment are used."""

    results_queue: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    create_queues: bool = False
    # Amazon's limit for a message; some compatible services take 262144
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 1_048_576
    # a bridge stores a result within this time, or SQS delivers it again: to another one, if this one died
    redeliver_after_seconds: Annotated[int, msgspec.Meta(ge=1, le=43_200)] = 20
    wait_seconds: Annotated[int, msgspec.Meta(ge=0, le=20)] = 20
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0


OPTIONS = SqsEngineOptions


class NoQueue(Exception):
    """There is no queue of this name, and none is to be created."""


@asynccontextmanager
async def connect(table: ConnectionTable) -> AsyncIterator[Engine]:
    """Open a client of SQS."""
    options = read_options(table, SqsEngineOptions)
    config = AioConfig(
        connect_timeout=options.timeout_seconds,
        # a long poll may take all of its time
        read_timeout=options.timeout_seconds + options.wait_seconds,
        max_pool_connections=MOST_PENDING + RECEIVERS + 2,
        retries={"max_attempts": 1, "mode": "standard"},
    )
    try:
        client = get_session().create_client(
            "sqs",
            region_name=options.region,
            endpoint_url=options.endpoint_url,
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            config=config,
        )
        async with client as opened:
            engine = SqsEngine(table, options, opened)
            await engine.prepare()
            deleting = asyncio.create_task(engine.delete_results())
            try:
                yield engine
            finally:
                await engine.stop(deleting)
    except (BotoCoreError, ClientError, OSError, TimeoutError) as error:
        raise _unavailable(table, error) from error


def _unavailable(table: ConnectionTable, error: BaseException) -> EngineUnavailable:
    why = str(error) or type(error).__name__
    return EngineUnavailable(f"{table.where}: SQS does not answer: {why}")


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


class SqsEngine:
    """A client of SQS."""

    def __init__(self, table: ConnectionTable, options: SqsEngineOptions, client: Any) -> None:
        self._table = table
        self._options = options
        self._client = client
        self._urls: dict[str, str] = {}
        self._bad = BadMessages(table.name)
        # receipts of results that are stored
        self._receipts: asyncio.Queue[str] = asyncio.Queue()

    # Queues

    async def prepare(self) -> None:
        """Find the queue of results. Raises SettingInvalid if there is none."""
        if self._options.results_queue is not None:
            try:
                await self._find_url(self._options.results_queue)
            except NoQueue as error:
                raise self._table.refuse("results_queue", f"names no queue: {error}") from error

    async def _find_url(self, queue: str) -> str:
        """The address of a queue, which is created if it may be. Raises NoQueue."""
        if queue.startswith(("http://", "https://")):
            return queue
        if queue not in self._urls:
            self._urls[queue] = await self._look_up(queue)
        return self._urls[queue]

    async def _look_up(self, queue: str) -> str:
        try:
            return str((await self._client.get_queue_url(QueueName=queue))["QueueUrl"])
        except ClientError as error:
            if _code(error) not in _NO_QUEUE:
                raise
        if not self._options.create_queues:
            raise NoQueue(f"SQS has no queue {queue!r}. Create it, or set create_queues = true.")
        attributes = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        try:
            made = await self._client.create_queue(QueueName=queue, Attributes=attributes)
        except ClientError as error:
            if _code(error) in _NEVER:
                raise NoQueue(f"{queue!r} is not a name for an SQS queue.") from error
            raise
        return str(made["QueueUrl"])

    # Delivery

    async def hand_over(self, handovers: Sequence[Handover]) -> dict[str, str]:
        """Send attempts in batches of ten."""
        refused: dict[str, str] = {}
        batches = list(self._divide(handovers, refused))
        for start in range(0, len(batches), MOST_PENDING):
            sending = [self._send(queue, batch) for queue, batch in batches[start : start + MOST_PENDING]]
            for answer in await asyncio.gather(*sending, return_exceptions=True):
                match answer:
                    case ClientError() | BotoCoreError() | OSError() | TimeoutError():
                        raise _unavailable(self._table, answer) from answer
                    case BaseException():
                        raise answer
                    case _:
                        refused |= answer
        return refused

    def _divide(
        self, handovers: Sequence[Handover], refused: dict[str, str]
    ) -> Iterator[tuple[str, list[tuple[Handover, str]]]]:
        """Batches for each queue, within the limits on their number and their size."""
        most = self._options.max_message_bytes
        batches: dict[str, list[tuple[Handover, str]]] = {}
        sizes: dict[str, int] = {}
        for one in handovers:
            text = one.encode_message().decode().translate(_UNSENDABLE)
            size = len(text.encode())
            if size > most:
                refused[one.id] = f"Its message has {size} bytes; SQS takes at most {most}."
                continue
            batch = batches.setdefault(one.queue, [])
            if len(batch) == MOST_IN_A_BATCH or sizes.get(one.queue, 0) + size > most:
                yield one.queue, batch
                batch = batches[one.queue] = []
                sizes[one.queue] = 0
            batch.append((one, text))
            sizes[one.queue] = sizes.get(one.queue, 0) + size
        yield from batches.items()

    async def _send(self, queue: str, batch: Sequence[tuple[Handover, str]]) -> Mapping[str, str]:
        """Send a batch; why some can never be delivered. What fails by chance is sent again, without the rest."""
        refused: dict[str, str] = {}
        left = {str(number): one for number, one in enumerate(batch)}
        for _ in range(TRIES):
            try:
                url = await self._find_url(queue)
                answer = await self._client.send_message_batch(
                    QueueUrl=url, Entries=[_describe(queue, *one, entry) for entry, one in left.items()]
                )
            except NoQueue as error:
                return {one.id: str(error) for one, _ in batch}
            except ClientError as error:
                if _code(error) not in _NO_QUEUE:
                    raise
                # it was removed since its address was found
                if self._urls.pop(queue, None) is None:
                    return {one.id: f"SQS has no queue {queue!r}." for one, _ in batch}
                continue
            failed = {one["Id"]: one for one in answer.get("Failed", [])}
            for entry, why in failed.items():
                if why.get("SenderFault") and why.get("Code") in _NEVER:
                    refused[left[entry][0].id] = f"SQS refused its message: {why.get('Message', why['Code'])}"
            left = {entry: one for entry, one in left.items() if entry in failed and one[0].id not in refused}
            if not left:
                return refused
        raise EngineUnavailable(
            f"{self._table.where}: SQS took {len(batch) - len(left)} of {len(batch)} messages."
        )

    # Results

    async def results(self) -> AsyncIterator[list[Report]]:
        """Results of workers, with several long polls at the same time."""
        queue = self._options.results_queue
        if queue is None:  # workers report over HTTP
            await asyncio.Event().wait()
            return
        receiving: set[asyncio.Task[list[Report]]] = set()
        try:
            url = await self._find_url(queue)
            while True:
                while len(receiving) < RECEIVERS:
                    receiving.add(asyncio.create_task(self._receive(url)))
                done, receiving = await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
                if reports := [report for one in done for report in one.result()]:
                    yield reports
        except NoQueue as error:
            raise EngineUnavailable(f"{self._table.where}: {error}") from error
        except (ClientError, BotoCoreError, OSError, TimeoutError) as error:
            self._urls.pop(queue, None)
            raise _unavailable(self._table, error) from error
        finally:
            for one in receiving:
                one.cancel()
            await asyncio.gather(*receiving, return_exceptions=True)

    async def _receive(self, url: str) -> list[Report]:
        answer = await self._client.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=MOST_IN_A_BATCH,
            WaitTimeSeconds=self._options.wait_seconds,
            VisibilityTimeout=self._options.redeliver_after_seconds,
        )
        reports = []
        for message in answer.get("Messages", []):
            acknowledge = partial(self._receipts.put, message["ReceiptHandle"])
            report = read_result(message["Body"], self._bad, acknowledge)
            if report is None:
                await acknowledge()
            else:
                reports.append(report)
        return reports

    async def delete_results(self) -> None:
        """Delete the results that are stored, ten at a time. One that stays is delivered again, and refused."""
        while True:
            receipts = [await self._receipts.get()]
            while not self._receipts.empty() and len(receipts) < MOST_IN_A_BATCH:
                receipts.append(self._receipts.get_nowait())
            try:
                await self._delete(receipts)
            except (NoQueue, ClientError, BotoCoreError, OSError, TimeoutError) as error:
                log.warning("results_not_deleted", engine=self._table.name, why=str(error))
            finally:
                for _ in receipts:
                    self._receipts.task_done()

    async def _delete(self, receipts: Sequence[str]) -> None:
        url = await self._find_url(self._options.results_queue or "")
        await self._client.delete_message_batch(
            QueueUrl=url,
            Entries=[{"Id": str(number), "ReceiptHandle": one} for number, one in enumerate(receipts)],
        )

    async def stop(self, deleting: "asyncio.Task[None]") -> None:
        """Delete what is stored, within the time limit, before the client is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.timeout_seconds):
                await self._receipts.join()
        deleting.cancel()
        await asyncio.wait({deleting})

    # What SQS cannot tell

    async def find_lost(self, handovers: Sequence[Handover]) -> list[Report]:
        """Nothing: SQS does not tell whether it still has a message."""
        del handovers
        return []

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        """Nothing: only the worker that received a message can delete it."""
        del handovers
        return set()


def _describe(queue: str, handover: Handover, text: str, entry: str) -> dict[str, str]:
    """An entry of a batch. A FIFO queue drops a repeated message, and orders nothing: each attempt is its own group."""
    described = {"Id": entry, "MessageBody": text}
    if queue.endswith(".fifo"):
        described |= {"MessageDeduplicationId": handover.id, "MessageGroupId": handover.id}
    return described
