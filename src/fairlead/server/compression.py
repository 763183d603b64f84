"""Compresses responses with gzip.

BREACH needs three things at once: a secret in the body, text of the attacker in the same body, and requests that
the attacker's page makes with the victim's session. Browsers send the session's cookie only from our own pages
(SameSite=Strict), programs send tokens in a header that no other site can set, and pages hold no CSRF token. New
secrets (tokens, passwords, enrolment codes) come only in answers to POST, and those are not compressed.
"""

import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.turns.loop_pauses import LoopPauses

TYPES = ("text/html", "text/css", "text/javascript", "text/csv", "application/json", "image/svg+xml")
SMALLEST = 1000
# The next levels take twice the time for a few percent.
LEVEL = 5
# How much is compressed at once.
PIECE_BYTES = 65_536
# A gzip header, without a time: equal bodies stay equal.
GZIP = 16 + zlib.MAX_WBITS


class Compression:
    """Middleware for whole answers to GET: a stream keeps its chunks as they are, since a compressor would hold them back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        accepted = _accepts_gzip(Headers(scope=scope))
        start: Message | None = None

        async def send_compressed(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message  # its headers depend on the body
                return
            if start is not None:
                begun, start = start, None
                if message["type"] == "http.response.body" and _is_compressible(begun, message):
                    await compress(begun, message, accepted=accepted)
                await send(begun)
            await send(message)

        await self._app(scope, receive, send_compressed)


async def compress(start: Message, message: Message, *, accepted: bool) -> None:
    """Compress the body if the client accepts that; caches must tell both forms apart."""
    headers = MutableHeaders(raw=start["headers"])
    headers.add_vary_header("Accept-Encoding")
    if not accepted:
        return
    message["body"] = await _compress(message["body"])
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(message["body"]))
    if (mark := headers.get("etag")) and not mark.startswith("W/"):
        headers["ETag"] = f"W/{mark}"  # a strong one promises the same bytes


async def _compress(body: bytes) -> bytes:
    """The body as gzip, in slices."""
    compressor, pauses = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP), LoopPauses()
    pieces = []
    for at in range(0, len(body), PIECE_BYTES):
        pieces.append(compressor.compress(body[at : at + PIECE_BYTES]))
        await pauses.pause_if_due()
    return b"".join([*pieces, compressor.flush()])


def _is_compressible(start: Message, message: Message) -> bool:
    headers = Headers(raw=start["headers"])
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return (
        not message.get("more_body", False)
        and len(message.get("body", b"")) >= SMALLEST
        and (kind in TYPES or kind.endswith("+json"))
        and "content-encoding" not in headers
    )


def _accepts_gzip(headers: Headers) -> bool:
    """Whether Accept-Encoding names gzip, other than with a weight of 0."""
    for part in headers.get("accept-encoding", "").split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
