"""The HTTP client of agents and of workers over HTTP: requests to one server, with its refusals raised as FairleadErrors."""

import random
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from fairlead.errors import (
    AgentSuperseded,
    EnrolmentRefused,
    FairleadError,
    Fault,
    InvalidInput,
    LeaseLost,
    ServerBusy,
    ServerNotWaitedFor,
    ServerRefused,
    ServerUnreachable,
    Unauthenticated,
)

T = TypeVar("T")

PREFIX = "/api/v1"
SECONDS = 10.0
# Temporary errors of the server or of a proxy: the caller retries.
TEMPORARY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
NOT_WAITED_FOR = 504
TOO_MANY_REQUESTS = 429
LONGEST_BACKOFF_SECONDS = 10.0
# Less than a server keeps an idle connection open: a request on a connection that it closes is lost.
KEEP_ALIVE_SECONDS = 2.0
_KNOWN: tuple[type[FairleadError], ...] = (AgentSuperseded, EnrolmentRefused, LeaseLost, Unauthenticated)


def api_url(server: str) -> str:
    """The URL of a server's API; the server may be mounted below a path."""
    return server.rstrip("/").removesuffix(PREFIX) + PREFIX


def backoff(failures: int) -> float:
    """Seconds to wait after this many failures, with jitter so that many clients do not retry together."""
    return min(LONGEST_BACKOFF_SECONDS, 0.25 * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1)  # noqa: S311


def _check_token(token: str) -> str:
    """The token without the space around it, which files have at their end; InvalidInput if it cannot be sent.

    The error of the HTTP client would quote it, and be logged.
    """
    clean = token.strip()
    if not (clean.isascii() and clean.isprintable() and clean):
        raise InvalidInput(
            "The token cannot be sent: it must be a single word of ASCII characters, without line feeds.",
            [Fault("token", "is not valid")],
        )
    return clean


class ServerClient:
    """Sends requests to one server, authenticated by a token."""

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        known: Sequence[type[FairleadError]] = (),
        connections: int = 20,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`known`: more errors of the server that are raised as what they are, and not as ServerRefused."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {_check_token(token)}"
        self._at = api_url(server)
        self._known = {one.code: one for one in (*_KNOWN, *known)}
        limits = httpx2.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=KEEP_ALIVE_SECONDS,
        )
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=SECONDS, limits=limits, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def post(self, path: str, body: Any, kind: type[T], *, patience: float = 0.0) -> T:
        """POST the body; the server's decoded answer. `patience` as for `get`."""
        content = msgspec.json.encode(body)
        return await self._request(kind, "POST", path, content=content, timeout=SECONDS + patience)

    async def get(self, path: str, params: dict[str, Any], kind: type[T], *, patience: float) -> T:
        """GET; the server's decoded answer. `patience` is how long a long poll may take on top of the usual timeout."""
        return await self._request(kind, "GET", path, params=params, timeout=SECONDS + patience)

    async def _request(self, kind: type[T], method: str, path: str, **more: Any) -> T:
        try:
            answer = await self._client.request(method, self._at + path, **more)
        except httpx2.InvalidURL as error:
            raise ServerRefused(f"{self._at} is not a valid URL: {error}.") from error
        # anyio raises AttributeError if the server resets a connection while it is being opened
        except (httpx2.RequestError, OSError, AttributeError) as error:
            why = str(error) or type(error).__name__
            raise ServerUnreachable(f"{self._at} does not answer: {why}.") from error
        if answer.status_code == NOT_WAITED_FOR:
            raise ServerNotWaitedFor(
                f"A proxy before {self._at} timed out (504): set the proxy's timeout to at least 30 seconds."
            )
        if answer.status_code == TOO_MANY_REQUESTS:
            raise ServerBusy(f"{self._at} answered 429: too many requests.", retry_after=_retry_after(answer))
        if answer.status_code in TEMPORARY_STATUSES:
            raise ServerUnreachable(f"{self._at} answered {answer.status_code}.")
        if not answer.is_success:
            raise self._refusal(answer)
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:  # a proxy's page, for example: treated as temporary
            raise ServerUnreachable(f"{self._at} did not send a Fairlead answer: {error}.") from error

    def _refusal(self, answer: httpx2.Response) -> FairleadError:
        try:
            told = answer.json()
            faults = [Fault(one["path"], one["message"]) for one in told.get("errors", ())]
            return self._known.get(told["code"], ServerRefused)(told["detail"], faults)
        except (ValueError, KeyError, TypeError):
            return ServerRefused(
                f"{self._at} answered {answer.status_code} without a Fairlead error: check that this is the server's URL."
            )


def _retry_after(answer: httpx2.Response) -> float:
    """The seconds after which the server accepts requests again."""
    try:
        return min(LONGEST_BACKOFF_SECONDS, max(0.1, float(answer.headers.get("Retry-After", 1))))
    except ValueError:  # a date
        return 1.0
