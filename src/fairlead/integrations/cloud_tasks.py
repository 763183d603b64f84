"""Google Cloud Tasks as a delivery engine: it sends each attempt to a worker's address over HTTP.

A task has no way back. The worker reports over Fairlead's own HTTP API, before it answers the task's request.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import grpc
import msgspec
import structlog
from google.api_core.exceptions import (
    AlreadyExists,
    FailedPrecondition,
    GoogleAPICallError,
    InvalidArgument,
    NotFound,
    RetryError,
)
from google.auth.exceptions import GoogleAuthError
from google.cloud.tasks_v2 import CloudTasksAsyncClient, Task
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.protobuf.duration_pb2 import Duration

from fairlead.errors import EngineUnavailable
from fairlead.integrations.configuration import ConnectionTable, read_options
from fairlead.integrations.engine import Engine, Handover, Report
from fairlead.integrations.lost_attempts import LostAttempts

log = structlog.get_logger(__name__)

# Calls at the same time: the interface has none for several tasks.
MOST_PENDING = 50
PAGE_SIZE = 1000
# Cloud Tasks waits for an answer between these times.
LEAST_DEADLINE_SECONDS, MOST_DEADLINE_SECONDS = 15, 1800
_QUEUE_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")


class CloudTasksOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a table with `driver = "cloud_tasks"`. Without a file, Google's default credentials are used."""

    project: Annotated[str, msgspec.Meta(min_length=1)]
    location: Annotated[str, msgspec.Meta(min_length=1)]
    # where workers take tasks; {tenant}, {tenant_id}, {definition}, {queue} and {host} are filled in
    url: Annotated[str, msgspec.Meta(pattern="^https?://")]
    # sent to the worker as a bearer token
    token: str | None = None
    # Cloud Tasks signs its requests as this service account
    service_account: str | None = None
    audience: str | None = None
    credentials_file: str | None = None
    # of an emulator
    endpoint: str | None = None
    insecure: bool = False
    # Cloud Tasks' limit for a task
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1024)] = 1_000_000
    lost_after_seconds: Annotated[float, msgspec.Meta(gt=0)] = 30.0
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 10.0


OPTIONS = CloudTasksOptions


@asynccontextmanager
async def connect(table: ConnectionTable) -> AsyncIterator[Engine]:
    """Open a client of Cloud Tasks."""
    options = read_options(table, CloudTasksOptions)
    if options.token and options.service_account:
        raise table.refuse(
            "token", "and service_account exclude each other: both are the request's authorisation"
        )
    try:
        transport = _open_transport(options)
    except (GoogleAuthError, OSError, ValueError) as error:
        raise table.refuse("credentials_file", f"cannot be used: {error}") from error
    try:
        await _reach(transport, options, table)
        yield CloudTasksEngine(table, options, CloudTasksAsyncClient(transport=transport))
    finally:
        await transport.close()  # type: ignore[no-untyped-call]


def _open_transport(options: CloudTasksOptions) -> CloudTasksGrpcAsyncIOTransport:
    if options.insecure:
        channel = grpc.aio.insecure_channel(options.endpoint or "127.0.0.1:8123")
        return CloudTasksGrpcAsyncIOTransport(channel=channel)
    more: dict[str, Any] = {"host": options.endpoint} if options.endpoint else {}
    return CloudTasksGrpcAsyncIOTransport(credentials_file=options.credentials_file, **more)


async def _reach(
    transport: CloudTasksGrpcAsyncIOTransport, options: CloudTasksOptions, table: ConnectionTable
) -> None:
    """Raise EngineUnavailable at once if there is no connection: otherwise only the first call would find it out."""
    try:
        async with asyncio.timeout(options.timeout_seconds):
            await transport.grpc_channel.channel_ready()
    except TimeoutError as error:
        raise EngineUnavailable(f"{table.where}: Cloud Tasks cannot be reached.") from error


class CloudTasksEngine:
    """A client of Cloud Tasks."""

    def __init__(
        self, table: ConnectionTable, options: CloudTasksOptions, client: CloudTasksAsyncClient
    ) -> None:
        self._table = table
        self._options = options
        self._client = client
        self._turns = asyncio.Semaphore(MOST_PENDING)
        self._lost = LostAttempts("Cloud Tasks", after_seconds=options.lost_after_seconds)

    # Delivery

    async def hand_over(self, handovers: Sequence[Handover]) -> dict[str, str]:
        """Create a task for each attempt. The task's name makes it one task, however often it is created."""
        answers = await self._gather([self._create(one) for one in handovers])
        return {one.id: answer for one, answer in zip(handovers, answers, strict=True) if answer is not None}

    async def _create(self, handover: Handover) -> str | None:
        """Create a task; why it can never be delivered, if so."""
        message = handover.encode_message()
        most = self._options.max_message_bytes
        if len(message) > most:
            return f"Its message has {len(message)} bytes; Cloud Tasks takes at most {most}."
        if not _QUEUE_NAME.fullmatch(handover.queue):
            return f"Its queue {handover.queue!r} is not a name for a queue of Cloud Tasks: use letters, digits and hyphens."
        if handover.host in (".", "..") and "{host}" in self._options.url:
            return f"Its host {handover.host!r} cannot be a part of the worker's address."
        async with self._turns:
            try:
                await self._client.create_task(
                    parent=self._queue(handover.queue),
                    task=self._describe(handover, message),
                    retry=None,
                    timeout=self._options.timeout_seconds,
                )
            except AlreadyExists:
                return None
            except (InvalidArgument, NotFound, FailedPrecondition) as error:
                return f"Cloud Tasks refused it for the queue {handover.queue!r}: {error.message}"
        return None

    def _describe(self, handover: Handover, message: bytes) -> Task:
        request: dict[str, Any] = {
            "url": self._fill_in(handover),
            "http_method": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": message,
        }
        if self._options.token:
            request["headers"]["Authorization"] = f"Bearer {self._options.token}"
        if self._options.service_account:
            request["oidc_token"] = {
                "service_account_email": self._options.service_account,
                "audience": self._options.audience or "",
            }
        seconds = min(max(handover.timeout_seconds, LEAST_DEADLINE_SECONDS), MOST_DEADLINE_SECONDS)
        return Task(
            name=self._name(handover), http_request=request, dispatch_deadline=Duration(seconds=seconds)
        )

    def _fill_in(self, handover: Handover) -> str:
        """The worker's address. Tenants name their hosts: a name must not lead to another server or path."""
        url = self._options.url
        for name, value in {
            "tenant": handover.tenant,
            "tenant_id": str(handover.tenant_id),
            "definition": handover.definition_key,
            "queue": handover.queue,
            "host": handover.host or "",
        }.items():
            url = url.replace(f"{{{name}}}", quote(value, safe=""))
        return url

    def _queue(self, queue: str) -> str:
        return f"projects/{self._options.project}/locations/{self._options.location}/queues/{queue}"

    def _name(self, handover: Handover) -> str:
        return f"{self._queue(handover.queue)}/tasks/{handover.id}"

    async def results(self) -> AsyncIterator[list[Report]]:
        """None: workers report over HTTP."""
        await asyncio.Event().wait()
        yield []  # it is a generator by this; it is never reached

    # Lost and canceled attempts

    async def find_lost(self, handovers: Sequence[Handover]) -> list[Report]:
        """Attempts whose tasks are gone: the worker answered, or Cloud Tasks gave up, and no report came for a while."""
        pages = await self._gather([self._list(queue) for queue in {one.queue for one in handovers}])
        present = {name for page in pages for name in page}
        absent = [one for one in handovers if self._name(one) not in present]
        tasks = await self._gather([self._find(one) for one in absent])
        missing = {one.id: one for one, task in zip(absent, tasks, strict=True) if task is None}
        return self._lost.report([missing[one] for one in self._lost.note(handovers, missing.keys())])

    async def _list(self, queue: str) -> list[str]:
        """The names of a queue's tasks."""
        async with self._turns:
            try:
                pager = await self._client.list_tasks(
                    request={"parent": self._queue(queue), "page_size": PAGE_SIZE},
                    retry=None,
                    timeout=self._options.timeout_seconds,
                )
                return [task.name async for task in pager]
            except NotFound:
                return []

    async def _find(self, handover: Handover) -> Task | None:
        async with self._turns:
            try:
                return await self._client.get_task(
                    name=self._name(handover), retry=None, timeout=self._options.timeout_seconds
                )
            except NotFound:
                return None

    async def cancel(self, handovers: Sequence[Handover]) -> set[str]:
        """Delete tasks that were never dispatched, and those whose time is up. The workers of the others learn of a cancel
        from their heartbeats over HTTP.
        """
        canceled = await self._gather([self._cancel(one) for one in handovers])
        return {one.id for one, untouched in zip(handovers, canceled, strict=True) if untouched}

    async def _cancel(self, handover: Handover) -> bool:
        """Whether the task was deleted before it was dispatched."""
        task = await self._find(handover)
        if task is None or (task.dispatch_count and datetime.now(UTC) < handover.deadline):
            return False
        async with self._turns:
            try:
                await self._client.delete_task(
                    name=self._name(handover), retry=None, timeout=self._options.timeout_seconds
                )
            except NotFound:
                return False
        return not task.dispatch_count

    async def _gather(self, calls: Sequence[Any]) -> list[Any]:
        """The answers to calls, or the first error once all have ended."""
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            match answer:
                case (
                    GoogleAPICallError()
                    | RetryError()
                    | GoogleAuthError()
                    | grpc.RpcError()
                    | OSError()
                    | TimeoutError()
                ):
                    why = str(answer) or type(answer).__name__
                    raise EngineUnavailable(
                        f"{self._table.where}: Cloud Tasks does not answer: {why}"
                    ) from answer
                case BaseException():
                    raise answer
                case _:
                    pass
        return answers
