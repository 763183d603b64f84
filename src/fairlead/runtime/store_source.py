"""A worker's jobs straight from the database."""

import asyncio
import math
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

import structlog

from fairlead.actions import settling
from fairlead.db.tx import Database, Tx
from fairlead.errors import DatabaseBusy
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Budget, Change, Released, decide
from fairlead.runtime.source import EndsPostponed, Held
from fairlead.store import queue, worker_claims, workflows
from fairlead.store.queue import Beat, Claim, Cursor

log = structlog.get_logger(__name__)

# Somebody was claiming from the same limit: what he left may be ours in a moment.
LOOKS = 5
LOOK_SECONDS = (0.002, 0.02)
# Between two looks for what a claim took whose answer was lost.
LOOK_AGAIN_SECONDS = 1.0

# Two workers that finish steps of one run wait for each other, for a few milliseconds. A process that was stopped with
# the run in its hands is not waited for: its own steps come later, and those of other runs go on.
PATIENCE_SECONDS = 0.25
NO_PATIENCE_SECONDS = 0.01

End = tuple[Lease, Change]

# Small tables make the planner read them whole and join by hashing; these statements are lookups by key.
PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    # a sequential scan that there is no way round is priced so high that compiling would seem to pay
    "jit": "off",
}


def worker_id() -> str:
    """host:pid:boot, new at each start of a process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"


class Unheard:
    """Tokens of claims whose answers were lost. A claim may be committed late: it is looked for until that cannot be."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[UUID, float] = {}
        self._look_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, token: UUID) -> None:
        """Look for what this claim took."""
        self._until[token] = time.monotonic() + self._seconds
        self._look_at = -math.inf

    def drop(self, tokens: Iterable[UUID]) -> None:
        """Look no longer for what these claims took."""
        for token in tokens:
            self._until.pop(token, None)

    def due(self) -> list[UUID]:
        """The tokens to look for now: a moment after the last look, so that claims do not wait for it each time."""
        now = time.monotonic()
        if not self._until or now < self._look_at:
            return []
        self._look_at = now + LOOK_AGAIN_SECONDS
        tokens = list(self._until)
        self._until = {token: until for token, until in self._until.items() if now < until}
        return tokens


class ClaimRepeated(Exception):
    """The id of this claim has taken jobs before; this time it took none."""


class StoreSource:
    """Claims, heartbeats and finishes, each one statement."""

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        lease_seconds: float,
        served: Sequence[UUID] | None = None,
        served_pairs: Sequence[tuple[UUID, UUID]] = (),
        waits: bool = False,
        patient: bool = True,
    ) -> None:
        """With `waits`, jobs say how long they had waited.

        One that is not `patient` raises EndsPostponed instead of waiting for a run that another process holds.
        """
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._served = served
        self._served_pairs = served_pairs
        self._waits = waits
        self._patient = patient
        # anywhere: workers that all began with the same tenant would give it more than its turn
        self._cursor = Cursor(uuid4())
        self.crowded = False
        # whose turn it is first, for those who claim once only
        self._had_suspect = bool(random.getrandbits(1))
        self._unheard = Unheard(lease_seconds + database.settings.statement_timeout_seconds)
        # of claims that have an id: their workers may have asked again, and then keep what they took
        self._noted: set[UUID] = set()
        # of what is held: steps of runs, and jobs that wait for runs. By lease, since the end of an attempt that was lost may
        # still be on its way when the next one has begun
        self._of_runs: set[Lease] = set()

    async def claim(self, wanted: int, *, claim_id: UUID | None = None) -> list[Held]:
        """Take up to this many jobs, going on round the circle of tenants where the last claim stopped.

        A `claim_id` takes jobs once: raises ClaimRepeated if it has done so before.
        """
        await self.release_unheard()
        claim = await self._claim(wanted, claim_id)
        for _ in range(LOOKS):
            if claim.jobs or not claim.busy:
                break
            await asyncio.sleep(random.uniform(*LOOK_SECONDS))  # noqa: S311
            claim = await self._claim(wanted, claim_id)
        return self._held(claim)

    async def claim_some(
        self, wanted: int, *, is_any_ready: bool = True, claim_id: UUID | None = None
    ) -> list[Held]:
        """Take up to this many jobs, or one suspect: for those who start all they are given at once, and wait for it.

        Where there are both, they take turns. Only a worker that holds nothing is given a suspect.
        """
        if not self._had_suspect and (held := await self.claim_suspect(idle=None, claim_id=claim_id)):
            self._had_suspect = True
            return held
        had_suspect, self._had_suspect = self._had_suspect, False
        held = await self.claim(wanted, claim_id=claim_id) if is_any_ready else []
        if held or not had_suspect:
            return held
        return await self.claim_suspect(idle=None, claim_id=claim_id)

    async def claim_suspect(self, *, idle: bool | None, claim_id: UUID | None = None) -> list[Held]:
        """Take one job that is to be started by itself, or none. `idle`: this worker runs nothing; None: look."""
        await self.release_unheard()
        claim = await self._ask(
            lambda tx, token: queue.claim_suspect(
                tx,
                worker=self._worker,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
                idle=idle,
                waits=self._waits,
                token=token,
            ),
            claim_id,
        )
        return self._held(claim)

    async def suspects_wait(self) -> bool:
        """Whether there would be such a job for this worker if it ran nothing."""
        return await self._database.single(
            lambda tx: queue.suspects_wait(
                tx,
                worker=self._worker,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
            )
        )

    def _held(self, claim: Claim) -> list[Held]:
        held = [Held(claim.lease(job), job) for job in claim.jobs]
        if claim.of_runs:
            of_runs = set(claim.of_runs)
            self._of_runs.update(one.lease for one in held if one.lease.job_id in of_runs)
        return held

    async def _claim(self, wanted: int, claim_id: UUID | None = None) -> Claim:
        claim = await self._ask(
            lambda tx, token: queue.claim(
                tx,
                worker=self._worker,
                wanted=wanted,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
                cursor=self._cursor,
                waits=self._waits,
                token=token,
            ),
            claim_id,
        )
        self._cursor = claim.cursor
        self.crowded = claim.crowded
        return claim

    async def _ask(self, ask: Callable[[Tx, UUID], Awaitable[Claim]], claim_id: UUID | None = None) -> Claim:
        """What a claim answers. If no answer comes, it may have taken jobs all the same, or may do so later."""
        token = uuid4()
        try:
            if claim_id is None:
                return await self._database.single(lambda tx: ask(tx, token))
            return await self._database.transact(lambda tx: self._once(tx, ask, token, claim_id))
        except ClaimRepeated:
            raise
        except BaseException:
            self._unheard.add(token)
            if claim_id is not None:
                self._noted.add(token)
            raise

    async def _once(
        self, tx: Tx, ask: Callable[[Tx, UUID], Awaitable[Claim]], token: UUID, claim_id: UUID
    ) -> Claim:
        """What a claim answers, unless its id has taken jobs before: all that this one took is rolled back then."""
        claim = await ask(tx, token)
        jobs = [job.job_id for job in claim.jobs]
        if jobs and not await worker_claims.note(
            tx, worker=self._worker, claim_id=claim_id, token=token, jobs=jobs
        ):
            raise ClaimRepeated
        return claim

    async def give_back(self, taken: Sequence[Held], *, claim_id: UUID | None = None) -> None:
        """Give back what was claimed and not begun, unless its worker has asked for it again under the claim's id."""
        tokens = {one.lease.token for one in taken} if claim_id is not None else set()
        kept = await self._withdraw(tokens) if tokens else set()
        ends = [(one.lease, decide(one.job, Released())) for one in taken if one.lease.token not in kept]
        if ends:
            await self.finish(ends)

    async def _withdraw(self, tokens: set[UUID]) -> set[UUID]:
        """Forget these claims. Those that come back were asked for again: what they took is not to be given back."""
        return await self._database.single(
            lambda tx: worker_claims.withdraw(tx, worker=self._worker, tokens=sorted(tokens))
        )

    @property
    def is_unheard(self) -> bool:
        """Whether a claim's answer was lost lately."""
        return bool(self._unheard)

    async def release_unheard(self) -> None:
        """Give back what was claimed by claims whose answers were lost: none of it was begun."""
        tokens = self._unheard.due()
        if not tokens:
            return
        if noted := self._noted.intersection(tokens):
            kept = await self._withdraw(noted)
            self._unheard.drop(kept)
            tokens = [token for token in tokens if token not in kept]
        if not self._unheard:
            self._noted.clear()
        taken = await self._database.single(
            lambda tx: queue.of_claims(tx, worker=self._worker, tokens=tokens)
        )
        if taken:
            log.warning("unheard_claim_released", jobs=len(taken))
            self._of_runs.update(lease for lease, of_run in taken.items() if of_run)
            change = decide(Budget(1, 0, 0, Backoff()), Released())
            with suppress(EndsPostponed):  # what is left is found again at the next look
                await self.finish([(lease, change) for lease in taken])

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, Beat]:
        """Renew leases. Those that do not come back are lost."""
        return await self._database.single(
            lambda tx: queue.heartbeat(tx, leases, lease_seconds=self._lease_seconds)
        )

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write how attempts ended; safe to repeat, since each is known by its lease."""
        actor = f"worker:{self._worker}"
        if not self._of_runs:
            return await self._database.reach(lambda tx: queue.finish(tx, ends, actor=actor))
        of_runs = [end for end in ends if end[0] in self._of_runs]
        others = [end for end in ends if end[0] not in self._of_runs]
        done: dict[UUID, JobStatus] = {}
        if others:
            done |= await self._database.reach(lambda tx: queue.finish(tx, others, actor=actor))
        if of_runs:
            done |= await self._finish_steps(of_runs, actor, done)
            self._of_runs.difference_update(lease for lease, _ in of_runs)
        return done

    async def _finish_steps(
        self, ends: Sequence[End], actor: str, others: dict[UUID, JobStatus]
    ) -> dict[UUID, JobStatus]:
        """Write the ends of steps together; where another process holds one of their runs, run by run."""
        if self._patient:
            return await self._settle(ends, actor)
        try:
            return await self._settle(ends, actor, lock_seconds=PATIENCE_SECONDS)
        except DatabaseBusy:
            log.info("finishing_run_by_run", jobs=len(ends))
        ids = [lease.job_id for lease, _ in ends]
        runs = await self._database.single(lambda tx: workflows.runs_of(tx, ids))
        by_run: dict[UUID, list[End]] = {}
        for end in ends:
            by_run.setdefault(runs.get(end[0].job_id) or end[0].job_id, []).append(end)
        done, left = others, list[Lease]()
        for some in by_run.values():
            try:
                done |= await self._settle(some, actor, lock_seconds=NO_PATIENCE_SECONDS)
            except DatabaseBusy:
                left += [lease for lease, _ in some]
        if left:
            self._of_runs.difference_update({lease for lease, _ in ends}.difference(left))
            raise EndsPostponed(done, left)
        return done

    async def _settle(
        self, ends: Sequence[End], actor: str, *, lock_seconds: float | None = None
    ) -> dict[UUID, JobStatus]:
        return await self._database.reach(
            lambda tx: settling.finish(tx, ends, actor=actor, lock_seconds=lock_seconds)
        )
