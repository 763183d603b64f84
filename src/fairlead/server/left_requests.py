"""A read whose client has disconnected is stopped: nobody gets its answer, and its statements would run on."""

import asyncio

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

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
        watch = _Watch(scope, receive)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not watch.has_left:
                raise
        finally:
            watch.end()


class _Watch:
    """Cancels the task that has created it when the client of its request disconnects."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.has_left = False
        self._scope = scope
        self._receive = receive
        self._request = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCHED_AFTER_SECONDS, self._begin)

    def _begin(self) -> None:
        if not any(name in BODY_HEADERS for name, _ in self._scope["headers"]):
            self._watching = asyncio.create_task(self._watch(), name="fairlead-client-watch")

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._request is not None:
            log.info("client_left", path=route_of(self._scope))
            self.has_left = True
            self._request.cancel()

    def end(self) -> None:
        """Stop watching: the request is over."""
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
        if self.has_left and self._request is not None:
            self._request.uncancel()
