"""The agent's HTTP client: requests to one server, with its refusals raised as FairleadErrors."""

import random
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from fairlead.errors import (
    AgentSuperseded,
    EnrolmentRefused,
    FairleadError,
    LeaseLost,
    ServerNotWaitedFor,
    ServerRefused,
    ServerUnreachable,
    Unauthenticated,
)

T = TypeVar("T")

PREFIX = "/api/v1"
SECONDS = 10.0
# Temporary errors of the server or of a proxy: the agent retries.
TEMPORARY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
NOT_WAITED_FOR = 504
LONGEST_BACKOFF_SECONDS = 10.0
_KNOWN: dict[str, type[FairleadError]] = {
    one.code: one for one in (AgentSuperseded, EnrolmentRefused, LeaseLost, Unauthenticated)
}


def api_url(server: str) -> str:
    """The URL of a server's API; the server may be mounted below a path."""
    return server.rstrip("/").removesuffix(PREFIX) + PREFIX


def backoff(failures: int) -> float:
    """Seconds to wait after this many failures, with jitter so that many agents do not retry together."""
    return min(LONGEST_BACKOFF_SECONDS, 0.25 * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1)  # noqa: S311


class AgentClient:
    """Sends requests to one server, authenticated by a token."""

    def __init__(
        self, server: str, token: str | None = None, *, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._at = api_url(server)
        self._client = httpx2.AsyncClient(headers=headers, timeout=SECONDS, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def post(self, path: str, body: Any, kind: type[T]) -> T:
        """POST the body; the server's decoded answer."""
        return await self._request(kind, "POST", path, json=body)

    async def get(self, path: str, params: dict[str, Any], kind: type[T], *, patience: float) -> T:
        """GET; the server's decoded answer. `patience` is how long a long poll may take on top of the usual timeout."""
        return await self._request(kind, "GET", path, params=params, timeout=SECONDS + patience)

    async def _request(self, kind: type[T], method: str, path: str, **more: Any) -> T:
        try:
            answer = await self._client.request(method, self._at + path, **more)
        except httpx2.InvalidURL as error:
            raise ServerRefused(f"{self._at} is not a valid URL: {error}.") from error
        except (httpx2.RequestError, OSError) as error:
            why = str(error) or type(error).__name__
            raise ServerUnreachable(f"{self._at} does not answer: {why}.") from error
        if answer.status_code == NOT_WAITED_FOR:
            raise ServerNotWaitedFor(
                f"A proxy before {self._at} timed out (504): set the proxy's timeout to at least 30 seconds."
            )
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
            return _KNOWN.get(told["code"], ServerRefused)(told["detail"])
        except (ValueError, KeyError, TypeError):
            return ServerRefused(
                f"{self._at} answered {answer.status_code} without a Fairlead error: check that this is the server's URL."
            )
