"""A read whose client has disconnected is stopped: nobody gets its answer, and its statements would run on."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.server.problems import route_of

log = structlog.get_logger(__name__)

# Only long requests are watched: most end sooner, and a watcher is a task.
WATCHED_AFTER_SECONDS = 0.5
READS = ("GET", "HEAD")
# A read with a body is not watched, since the watcher would take its messages.
BODY_HEADERS = (b"content-length", b"transfer-encoding")


class LeftRequests:
    """Middleware that cancels a long read when its client disconnects. Writes go on: they may have begun."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in READS:
            await self._app(scope, receive, send)
            return
        watch = _Watch(scope, receive, send)
        before = _watch_of_request.set(watch)
        try:
            await self._app(scope, watch.receive, watch.send)
        except asyncio.CancelledError:
            if not watch.is_canceled:
                raise
        finally:
            _watch_of_request.reset(before)
            watch.end()


@contextmanager
def go_on_without_client() -> Iterator[None]:
    """A block that the request finishes even if its client disconnects; then it stops."""
    watch = _watch_of_request.get()
    if watch is None:  # a write, or no request
        yield
        return
    watch.blocks += 1
    try:
        yield
    finally:
        watch.blocks -= 1
        watch.cancel_if_left()


class _Watch:
    """Cancels the task that has created it when the client of its request disconnects."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.is_canceled = False
        # blocks that must not be interrupted, and in which the request is
        self.blocks = 0
        self._has_left = False
        self._scope = scope
        self._receive = receive
        self._send = send
        # messages that the watcher has received before the application
        self._taken = deque[Message]()
        self._request = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCHED_AFTER_SECONDS, self._begin)

    async def receive(self) -> Message:
        """The next message, for the application."""
        return self._taken.popleft() if self._taken else await self._receive()

    async def send(self, message: Message) -> None:
        """Send a message of the application. Once the response is complete, servers report that the client is gone."""
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._stop()
        await self._send(message)

    def _begin(self) -> None:
        if not any(name in BODY_HEADERS for name, _ in self._scope["headers"]):
            self._watching = asyncio.create_task(self._watch(), name="fairlead-client-watch")

    async def _watch(self) -> None:
        while not self._has_left:
            message = await self._receive()
            self._taken.append(message)
            self._has_left = message["type"] == "http.disconnect"
        log.info("client_left", path=route_of(self._scope))
        self.cancel_if_left()

    def cancel_if_left(self) -> None:
        """Cancel the request if its client has left, and no block goes on without it."""
        if self._has_left and not self.blocks and not self.is_canceled and self._request is not None:
            self.is_canceled = True
            self._request.cancel()

    def _stop(self) -> None:
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def end(self) -> None:
        """Stop watching: the request is over."""
        self._stop()
        if self.is_canceled and self._request is not None:
            self._request.uncancel()


_watch_of_request: ContextVar[_Watch | None] = ContextVar("watch_of_request", default=None)
