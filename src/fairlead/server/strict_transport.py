"""Browsers that came over TLS once are told to come over TLS only."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A year; not for other hosts of the domain, which are not ours.
HEADER = (b"strict-transport-security", b"max-age=31536000")


class StrictTransport:
    """Adds the header to what is answered over TLS. Only our own server does: a mounted application's host is not ours."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["scheme"] != "https":
            await self._app(scope, receive, send)
            return

        async def strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), HEADER]}
            await send(message)

        await self._app(scope, receive, strict)
