"""Limits the size of request bodies before they are read."""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import BodyTooLarge
from fairlead.server.problems import problem_response


class BodySizeLimit:
    """Middleware that refuses bodies larger than `most` bytes, declared or streamed."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._most:
            await self._refuse(scope, receive, send)
            return
        read = 0
        refused = False

        async def receive_bounded() -> Message:
            nonlocal read, refused
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self._most:
                    refused = True
                    raise _TooLarge
            return message

        async def unless_refused(message: Message) -> None:
            if not refused:
                await send(message)

        with suppress(_TooLarge):
            await self._app(scope, receive_bounded, unless_refused)
        if refused:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = BodyTooLarge(
            f"The body is larger than {self._most} bytes. Send less, or raise FAIRLEAD_MAX_BODY_BYTES."
        )
        await problem_response(error, {"Connection": "close"})(scope, receive, send)


class _TooLarge(BaseException):
    """Raised while the body is read. A BaseException, so that the application does not catch it."""
