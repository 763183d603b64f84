"""The claims of a worker over HTTP: long polls, repeated with the same id until their answer arrives."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

import msgspec
import structlog

from fairlead.errors import (
    ClaimSettled,
    DefinitionUnknown,
    FairleadError,
    Forbidden,
    InvalidInput,
    ServerBusy,
    ServerNotWaitedFor,
    ServerUnreachable,
    Unauthenticated,
)
from fairlead.model.definition import MAX_SLOTS
from fairlead.runtime.http_jobs import ReceivedJob
from fairlead.runtime.server_client import ServerClient, backoff
from fairlead.runtime.service import wait_any
from fairlead.runtime.unstarted import UnreadClaims

log = structlog.get_logger(__name__)

CLAIM_PATH = "/worker/jobs/claim"
LONGEST_WAIT_SECONDS = 25.0
SHORTEST_WAIT_SECONDS = 0.5
# A long poll takes at most this part of a lease: the lease may be as old as the poll.
WAIT = 1 / 3
# The pause after an empty answer that did not wait: a server that holds no long polls gets few requests.
LULL_SECONDS = 0.2
# How long a key that the server does not know is left out of the claims.
LEFT_OUT_SECONDS = 30.0
# What the server's refusals of a claim mean for the worker; others are logged, and the claim is repeated.
CLAIM_ERRORS: tuple[type[FairleadError], ...] = (ClaimSettled, DefinitionUnknown, Forbidden)


class ClaimAnswer(msgspec.Struct):
    """The server's answer to a claim."""

    items: list[ReceivedJob]
    lease_seconds: float


class ClaimedJobs(NamedTuple):
    """The jobs of a claim. If they are not `ours`, the heartbeat thread has withdrawn the claim, and they must not start."""

    jobs: list[ReceivedJob]
    ours: bool


class ClaimRequests:
    """Claims jobs for one worker, one claim after the other."""

    def __init__(
        self,
        client: ServerClient,
        *,
        worker_id: str,
        keys: Sequence[str],
        version: str,
        stop: asyncio.Event,
        slots: int = 1,
        labels: Mapping[str, str] | None = None,
        unread: UnreadClaims | None = None,
    ) -> None:
        """A claim that waits ends when `stop` is set; a refusal of the token sets it. `unread`: shared by those of one worker."""
        self._client = client
        self._worker_id = worker_id
        self._version = version
        self._slots = min(slots, MAX_SLOTS)
        self._labels = dict(labels or {})
        self._stop = stop
        self._keys = list(keys)
        # keys that the server does not know, or that the token may not claim, and until when they are left out
        self._left_out: dict[str, float] = {}
        self._claim_id = uuid4()
        # whether a claim with this id may have taken jobs that did not arrive here
        self._may_hold_jobs = False
        self._wait = LONGEST_WAIT_SECONDS
        self._failures = 0
        self.lease_seconds = 0.0
        self._unread = UnreadClaims() if unread is None else unread
        # claims of the worker whose jobs are to be released here
        self._withdrawn: list[UUID] = []
        # why the server refused this worker
        self.refusal: FairleadError | None = None

    async def begin(self) -> bool:
        """Wait for the server, and learn how long a lease lasts; False if `stop` is set before.

        The answer's jobs are not used: the first claim repeats this one and gets them again.
        """
        while not self._stop.is_set():
            try:
                answer = await self._ask(limit=1, wait=0)
            except ServerUnreachable as error:
                log.warning("server_unreachable", why=error.message)
                await self._pause_after(error)
                continue
            except DefinitionUnknown as error:
                self._leave_out(error)
                if len(self._left_out) == len(self._keys):
                    raise _nothing_to_claim_error(self._keys) from error
                continue
            if answer is not None:
                self.lease_seconds = answer.lease_seconds
                self._wait = min(LONGEST_WAIT_SECONDS, answer.lease_seconds * WAIT)
                return True
        return False

    async def claim(self, wanted: int) -> ClaimedJobs:
        """Claim up to `wanted` jobs: waits for the first one, or until `stop` is set."""
        claim_id = self._claim_id
        self._unread.begin(claim_id)
        is_ours = False
        try:
            jobs = await self._claim(wanted)
        finally:
            is_ours = self._unread.read(claim_id)
            if not is_ours and self._claim_id == claim_id:
                self._begin_new_claim()
        return ClaimedJobs(jobs, is_ours)

    async def _claim(self, wanted: int) -> list[ReceivedJob]:
        asked_at = time.monotonic()
        try:
            answer = await self._ask(limit=wanted, wait=self._wait)
        except ServerUnreachable as error:
            if isinstance(error, ServerNotWaitedFor):
                self._wait = max(SHORTEST_WAIT_SECONDS, self._wait / 2)
            await self._pause_after(error)
            raise
        except ClaimSettled:  # its jobs were released at the server, or their leases are lost
            self._begin_new_claim()
            return []
        except DefinitionUnknown as error:
            self._leave_out(error)
            return []
        except (Unauthenticated, Forbidden) as error:
            self.refusal = error
            self._stop.set()
            raise
        except FairleadError as error:
            await self._pause_after(error)
            raise
        if answer is None:
            return []
        self._failures = 0
        if answer.items:
            self._begin_new_claim()
        elif time.monotonic() - asked_at < self._wait / 2:
            await wait_any(self._stop, seconds=LULL_SECONDS)
        return answer.items

    async def take_unanswered(self) -> list[ReceivedJob]:
        """The jobs of a claim whose answer did not arrive, so that they can be released before the worker ends."""
        if not self._may_hold_jobs:
            return []
        try:
            answer = await self._post(limit=1, wait=0)
        except (ClaimSettled, DefinitionUnknown):
            return []
        self._begin_new_claim()
        return answer.items

    async def take_withdrawn(self) -> list[ReceivedJob]:
        """The jobs of claims whose answers the worker has not read, and will not use: for the heartbeat thread."""
        self._withdrawn += self._unread.withdraw()
        jobs: list[ReceivedJob] = []
        for claim_id in list(self._withdrawn):
            self._claim_id, self._may_hold_jobs = claim_id, True
            if taken := await self.take_unanswered():
                self._withdrawn.remove(claim_id)
                jobs += taken
        return jobs

    async def _ask(self, *, limit: int, wait: float) -> ClaimAnswer | None:
        """The answer to a claim; None if `stop` is set before it arrives."""
        if self._stop.is_set():
            return None
        if not self._list_claimable():
            await wait_any(self._stop, seconds=1.0)
            return None
        asking = asyncio.ensure_future(self._post(limit=limit, wait=wait))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((asking, stopping), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            stopping.cancel()

    async def _post(self, *, limit: int, wait: float) -> ClaimAnswer:
        body = {
            "definitions": self._list_claimable() or self._keys,
            "worker_id": self._worker_id,
            "version": self._version,
            "claim_id": str(self._claim_id),
            "limit": limit,
            # a server of an older version knows neither
            **({"slots": self._slots} if self._slots > 1 else {}),
            **({"labels": self._labels} if self._labels else {}),
            "wait": wait,
        }
        self._may_hold_jobs = True
        try:
            answer = await self._client.post(CLAIM_PATH, body, ClaimAnswer, patience=wait)
        except ServerUnreachable:
            raise
        except FairleadError:
            self._may_hold_jobs = False
            raise
        self._may_hold_jobs = bool(answer.items)
        return answer

    def _begin_new_claim(self) -> None:
        self._claim_id = uuid4()
        self._may_hold_jobs = False

    def _list_claimable(self) -> list[str]:
        now = time.monotonic()
        self._left_out = {key: until for key, until in self._left_out.items() if now < until}
        return [key for key in self._keys if key not in self._left_out]

    def _leave_out(self, error: DefinitionUnknown) -> None:
        """Claim without the keys that the server does not know, for a while: they may be published meanwhile."""
        asked = self._list_claimable()
        until = time.monotonic() + LEFT_OUT_SECONDS
        for fault in error.faults:
            index = fault.path.rpartition(".")[2]
            if index.isdecimal() and int(index) < len(asked):
                self._left_out[asked[int(index)]] = until
        log.warning("definitions_not_claimed", keys=sorted(self._left_out), advice=ADVICE)

    async def _pause_after(self, error: FairleadError) -> None:
        self._failures += 1
        seconds = error.retry_after if isinstance(error, ServerBusy) else backoff(self._failures)
        await wait_any(self._stop, seconds=seconds)


ADVICE = (
    "Publish them on a machine with the database (fairlead serve APP, or fairlead definitions put KEY), and check "
    "that the token may claim them."
)


def _nothing_to_claim_error(keys: Sequence[str]) -> InvalidInput:
    return InvalidInput(
        f"The server knows none of this worker's definitions ({', '.join(sorted(keys))}). {ADVICE}"
    )
