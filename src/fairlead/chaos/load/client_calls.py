"""How a client records its calls, and what it writes about them.

Each call has a CallRecord before it is sent and an AnswerRecord after it. Jobs, events and runs of a call have the call's id as
their correlation id; payloads carry it as `call`, and their place in the call as `n`. The kinds, and what `what` has:

| kind | `what` | answer |
|---|---|---|
| `enqueue` | `via` (`library`, `http`), `jobs`: all of them or none; `idempotency_key` | `ids` in the order of the jobs; `deduplicated`: whether each is the id of an existing job; `replayed` |
| `order` | `via`, `jobs`, `order`: the id of a row in public.chaos_orders of the same transaction, `rollback`: whether it is planned, `event`: whether an event is in it, too | `ok` if it was committed |
| `emit` | `via`, `name`, `data`, `idempotency_key` | `ids`: the event's |
| `run` | `via`, `shape` (`fan_out`, `graph`), `key`: the unique key of the run, `tasks` or `steps`, `jobs`: their number | `ids`: the run's |
| `cancel`, `retry` | `via`, `job` | `ids`: the job's; `status` after it |
| `backfill` | `via`, `schedule` | `enqueued`: how many jobs |
| `edit` | `via`, `job`, `edit`: its number among the edits of the job, which the payload has as `edit` | `ids`: the job's |
| `signal` | `via`, `job`, `name` | `ids`: the signal's |
| `answer` | `via`, `job`, `approval`, `answer` (`approve`, `reject`); its comment is the id of the call | `ids`: the approval's |
| `secret` | `via` (`file`), `owner`: whose secret is changed, `number`: which value it has from now on | |
| `attack` | `attack`, `job`: of the hostile tenant; must be refused | `fail` if it was refused |

An item of `jobs` has `definition`, `plan` (its payload without `call`, `n` and a secret) and, if given, the other fields of ClientJob.
A call that repeats another one has `repeat_of`: the id of the first one, which its payloads and correlation ids carry, too.
A call that failed surely had no effect. One whose effect is not certain is unknown.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple
from uuid import UUID

import httpx2
import structlog
from uuid_utils.compat import uuid7

from fairlead.chaos.history import AnswerRecord, CallRecord, HistoryWriter, now
from fairlead.chaos.load.client_jobs import JobChooser
from fairlead.chaos.site.access import RunAccess
from fairlead.errors import FairleadError, Refused
from fairlead.library.app import Fairlead

log = structlog.get_logger(__name__)

# A call that has no answer by then is unknown.
CALL_SECONDS = 20.0
KNOWN_JOBS = 300
# The request was not sent: no connection was opened.
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

CallOutcome = Literal["ok", "fail", "unknown"]
Via = Literal["library", "http"]


class CallResult(NamedTuple):
    """What an acknowledged call brought."""

    ids: list[UUID]
    what: dict[str, Any]


class CallFailed(Exception):
    """The call surely had no effect. The message is its code."""


class CallUnclear(Exception):
    """The call may have had its effect. The message is its code."""


class KnownJob(NamedTuple):
    id: UUID
    tenant: str
    definition: str
    known_at: float


class ServerApi:
    """The HTTP API of the run: each request goes to one of its servers."""

    def __init__(self, access: RunAccess, chance: random.Random) -> None:
        self._access = access
        self._chance = chance
        self._client = httpx2.AsyncClient(
            timeout=CALL_SECONDS, limits=httpx2.Limits(max_connections=100, max_keepalive_connections=8)
        )

    async def post(
        self, tenant: str, path: str, body: Any = None, *, key: str | None = None, method: str = "POST"
    ) -> Any:
        """The decoded response, with `replayed` if the server said so; CallFailed or CallUnclear otherwise."""
        headers = {"Authorization": f"Bearer {self._access.tokens[tenant]}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        url = f"{self._chance.choice(self._access.servers)}/api/v1{path}"
        response = await self._client.request(method, url, json=body, headers=headers)
        if response.is_success:
            replayed = {"replayed": True} if "Idempotent-Replayed" in response.headers else {}
            return {**response.json(), **replayed}
        code = _read_code(response)
        # a refusal is answered before anything is written, or after all of it was rolled back
        raise CallFailed(code) if 400 <= response.status_code < 500 else CallUnclear(code)

    async def close(self) -> None:
        await self._client.aclose()


def _read_code(response: httpx2.Response) -> str:
    """The code of an error response; one of a proxy has none."""
    try:
        return str(response.json()["code"])
    except (ValueError, KeyError, TypeError):
        return f"http_{response.status_code}"


class ClientSession:
    """What the calls of one client share: both ways into the run, the seed's choices, and the jobs that it knows of."""

    def __init__(
        self, fl: Fairlead, access: RunAccess, history: HistoryWriter, chance: random.Random
    ) -> None:
        self.fl = fl
        self.access = access
        self.chance = chance
        self.api = ServerApi(access, chance)
        self.jobs = JobChooser(chance, access.unserved)
        self.known: deque[KnownJob] = deque(maxlen=KNOWN_JOBS)
        self._history = history

    async def call(
        self,
        kind: str,
        tenant: str,
        what: dict[str, Any],
        send: Callable[[UUID], Awaitable[CallResult]],
        *,
        repeat_of: UUID | None = None,
    ) -> AnswerRecord:
        """Record a call and its answer. `send` gets the id that payloads and correlation ids carry."""
        call_id = uuid7()
        repeated = {} if repeat_of is None else {"repeat_of": repeat_of}
        self._history.write(CallRecord(now(), call_id, kind, tenant, {**what, **repeated}))
        outcome: CallOutcome = "unknown"
        result, code = CallResult([], {}), "stopped"
        try:
            async with asyncio.timeout(CALL_SECONDS):
                result = await send(repeat_of or call_id)
            outcome, code = "ok", ""
        except Exception as error:  # noqa: BLE001 - the answer says it, and the client goes on
            outcome, code = classify(error)
        finally:
            answer = AnswerRecord(now(), call_id, outcome, result.ids, code, result.what)
            self._history.write(answer)
        return answer

    def choose_via(self) -> Via:
        return self.chance.choice(("library", "http"))

    def remember(self, tenant: str, ids: list[UUID], definitions: list[str]) -> None:
        """Keep acknowledged jobs, for calls that change them."""
        for job_id, definition in zip(ids, definitions, strict=True):
            self.known.append(KnownJob(job_id, tenant, definition, now()))

    async def close(self) -> None:
        await self.api.close()


def classify(error: Exception) -> tuple[CallOutcome, str]:
    """What a failed call came to, and its code: `fail` only if it surely had no effect."""
    outcome: CallOutcome = "fail" if isinstance(error, (CallFailed, Refused, *NOT_SENT)) else "unknown"
    match error:
        case CallFailed() | CallUnclear():
            code = str(error)
        case FairleadError():
            code = error.code
        case httpx2.TransportError():
            code = "not_sent" if outcome == "fail" else "connection_lost"
        case TimeoutError():
            code = "gave_up"
        case _:
            log.warning("unexpected_answer", error=repr(error))
            code = type(error).__name__
    return outcome, code
