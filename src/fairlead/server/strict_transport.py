"""Strict-Transport-Security: browsers that used TLS once use only TLS."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A year, without subdomains, which are not ours.
HEADER = (b"strict-transport-security", b"max-age=31536000")


class StrictTransport:
    """Adds the header to responses over TLS, in our own server only: the host of a mounted application is not ours."""

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
