"""Workers behind each delivery engine, as their users would write them: take a message, do the work, report, and take the next.

The contract tests run them in their own process, the chaos tests in processes that are killed.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol

import httpx2
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig

from tests.waiting import SECONDS

ERRORS = (NatsError, BotoCoreError, ClientError, httpx2.HTTPError, OSError, TimeoutError)
PARALLEL = 12


class Address(NamedTuple):
    """Where a worker finds its engine, and Fairlead's API."""

    engine: str
    # of the broker; for push, where the worker itself listens
    port: int
    # begins the names of all queues of one test
    prefix: str
    api: str
    token: str
    # when the engine delivers a message again that was not acknowledged
    ack_wait_seconds: int

    def name(self, what: str) -> str:
        """The name of a queue: `jobs` and so on."""
        return f"{self.prefix}.{what}" if self.engine == "nats" else f"{self.prefix}-{what}"


class Delivery(NamedTuple):
    """A message, as it was delivered."""

    body: dict[str, Any]
    # it is done with
    done: Callable[[], Awaitable[None]]
    # deliver it again
    again: Callable[[], Awaitable[None]]


OnDelivery = Callable[[Delivery], Awaitable[None]]


class Client(Protocol):
    """A worker's connection to its engine."""

    async def report(self, delivery: Delivery, **fields: Any) -> int | None:
        """Report on an attempt; over HTTP the status of the answer."""

    async def spoil(self) -> None:
        """Send a message that is no report, where that is possible."""

    async def end(self) -> None:
        """Take nothing any more."""


class Http:
    """Fairlead's API for workers."""

    def __init__(self, address: Address) -> None:
        headers = {"Authorization": f"Bearer {address.token}"}
        self._client = httpx2.AsyncClient(
            base_url=f"{address.api}/worker/jobs", headers=headers, timeout=SECONDS
        )

    async def post(self, delivery: Delivery, what: str, **fields: Any) -> httpx2.Response:
        body = delivery.body
        lease = {"attempt_no": body["attempt_no"], "lease_token": body["lease_token"]}
        return await self._client.post(f"/{body['job_id']}/{what}", json={**lease, **fields})

    async def report(self, delivery: Delivery, *, status: str, **fields: Any) -> int:
        """The same report as a message has it; once the server has answered."""
        what = {"succeeded": "complete", "failed": "fail", "progress": "progress"}[status]
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                answer = await self.post(delivery, what, **fields)
                if answer.status_code < 500:
                    return answer.status_code
            await asyncio.sleep(0.1)

    async def is_current(self, delivery: Delivery) -> bool:
        """Whether the attempt has not ended: an engine may deliver one again whose outcome is stored."""
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                answer = await self.post(delivery, "heartbeat")
                if answer.status_code < 500:
                    return answer.is_success
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        await self._client.aclose()


def build_message(delivery: Delivery, fields: dict[str, Any]) -> bytes:
    body = delivery.body
    lease = {name: body[name] for name in ("job_id", "attempt_no", "lease_token")}
    return json.dumps({**lease, **fields}).encode()


# NATS


@asynccontextmanager
async def open_nats(address: Address, on_delivery: OnDelivery) -> AsyncIterator[Client]:
    client = NatsClient()
    await client.connect(
        f"nats://127.0.0.1:{address.port}",
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,  # type: ignore[arg-type]
        error_cb=_ignore,
    )
    js = client.jetstream(timeout=2)

    async def take() -> None:
        subscription = None
        while True:
            try:
                if subscription is None:
                    await js.add_consumer(address.prefix, config)
                    subscription = await js.pull_subscribe_bind("workers", stream=address.prefix)
                [message] = await subscription.fetch(1, timeout=1)
            except TimeoutError:
                continue
            except ERRORS:
                # the broker is away
                subscription = None
                await asyncio.sleep(0.1)
                continue
            delivery = Delivery(json.loads(message.data), message.ack, message.nak)
            await on_delivery(delivery)

    class Nats:
        async def report(self, delivery: Delivery, **fields: Any) -> None:
            body = build_message(delivery, fields)
            await _insist(lambda: js.publish(address.name("results"), body))

        async def spoil(self) -> None:
            await _insist(lambda: js.publish(address.name("results"), b"{no json"))

        async def end(self) -> None:
            for one in taking:
                one.cancel()
            await asyncio.gather(*taking, return_exceptions=True)

    config = ConsumerConfig(
        durable_name="workers",
        ack_wait=address.ack_wait_seconds,
        filter_subject=address.name("jobs.*"),
    )
    taking = [asyncio.create_task(take()) for _ in range(PARALLEL)]
    opened = Nats()
    try:
        yield opened
    finally:
        await opened.end()
        await client.close()


async def _ignore(_error: Exception) -> None:
    """The client reconnects by itself."""


async def _insist(call: Callable[[], Awaitable[Any]]) -> None:
    while True:
        try:
            await call()
        except ERRORS:
            await asyncio.sleep(0.1)
        else:
            return


# SQS


@asynccontextmanager
async def open_sqs(  # noqa: C901 - flat, and read from top to bottom
    address: Address, on_delivery: OnDelivery
) -> AsyncIterator[Client]:
    async with get_session().create_client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=f"http://127.0.0.1:{address.port}",
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106
    ) as sqs:
        found: dict[str, str] = {}

        async def find(what: str) -> str:
            if what not in found:
                found[what] = str((await sqs.create_queue(QueueName=address.name(what)))["QueueUrl"])
            return found[what]

        async def take() -> None:
            while True:
                try:
                    url = await find("jobs")
                    answer = await sqs.receive_message(
                        QueueUrl=url,
                        MaxNumberOfMessages=10,
                        WaitTimeSeconds=1,
                        VisibilityTimeout=address.ack_wait_seconds,
                    )
                except ERRORS:
                    found.clear()  # moto forgets its queues when it is killed
                    await asyncio.sleep(0.1)
                    continue
                await asyncio.gather(*(work(url, one) for one in answer.get("Messages", [])))

        async def work(url: str, message: Any) -> None:
            at = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}

            async def done() -> None:
                with contextlib.suppress(*ERRORS):
                    await sqs.delete_message(**at)

            async def again() -> None:
                await sqs.change_message_visibility(**at, VisibilityTimeout=0)

            await on_delivery(Delivery(json.loads(message["Body"]), done, again))

        class Sqs:
            async def report(self, delivery: Delivery, **fields: Any) -> None:
                body = build_message(delivery, fields).decode()

                async def send() -> None:
                    try:
                        await sqs.send_message(QueueUrl=await find("results"), MessageBody=body)
                    except ERRORS:
                        found.clear()
                        raise

                await _insist(send)

            async def spoil(self) -> None:
                await sqs.send_message(QueueUrl=await find("results"), MessageBody="{no json")

            async def end(self) -> None:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)

        taking = asyncio.create_task(take())
        opened = Sqs()
        try:
            yield opened
        finally:
            await opened.end()


# Push


@asynccontextmanager
async def open_push(address: Address, on_delivery: OnDelivery) -> AsyncIterator[Client]:
    http = Http(address)
    answering: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(answer(reader, writer))
        answering.add(task)
        task.add_done_callback(answering.discard)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            assert b"authorization: bearer pushed" in head, head
            body = json.loads(await reader.readexactly(length))
            status: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

            async def settle(line: bytes) -> None:
                if not status.done():
                    status.set_result(line)

            working = asyncio.ensure_future(
                on_delivery(Delivery(body, lambda: settle(b"200 OK"), lambda: settle(b"503 Later")))
            )
            writer.write(b"HTTP/1.1 " + await status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            await working

    class Push:
        async def report(self, delivery: Delivery, **fields: Any) -> int:
            return await http.report(delivery, **fields)

        async def spoil(self) -> None:
            """There is no queue of results."""

        async def end(self) -> None:
            server.close()
            # requests that no check has answered
            left = list(answering)
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    server = await asyncio.start_server(accept, "127.0.0.1", address.port)
    opened = Push()
    try:
        yield opened
    finally:
        await opened.end()
        await http.close()


OPEN = {"nats": open_nats, "sqs": open_sqs, "push": open_push}
