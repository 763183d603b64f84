"""The JobSource of a worker that is connected to the database."""

import asyncio
import math
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

import structlog
from msgspec.structs import replace

from fairlead.actions import workflow_progress
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, FairleadError
from fairlead.model.job import JobStatus, Lease
from fairlead.model.labels import parse_labels
from fairlead.model.outcome import Backoff, Change, Released, RetryBudget, decide
from fairlead.runtime.job_source import EndsPostponed, HeldJob, release_unstarted
from fairlead.runtime.slot_reserve import SlotReserve
from fairlead.runtime.unstarted import UnreadClaims
from fairlead.store import queue, worker_claims, workflows
from fairlead.store.queue import Claim, Cursor, HeartbeatResult, end_unreadable

log = structlog.get_logger(__name__)

# Retries of a claim that found a limit locked by another claim.
LOOKS = 5
LOOK_SECONDS = (0.002, 0.02)
# Between two searches for the jobs of a claim whose answer was lost.
LOOK_AGAIN_SECONDS = 1.0

# Two workers that finish steps of one run wait for each other for a few milliseconds. If a stopped process holds the
# run's lock, the steps of that run are postponed and those of other runs are written.
PATIENCE_SECONDS = 0.25
NO_PATIENCE_SECONDS = 0.01

End = tuple[Lease, Change]

# For small tables the planner prefers sequential scans and hash joins; these statements are lookups by key.
PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    # an unavoidable sequential scan has so high a cost now that the planner would use JIT
    "jit": "off",
    # a plan for the length of each array would be made anew for each statement, which takes longer than to run it
    "plan_cache_mode": "force_generic_plan",
}


def new_worker_id() -> str:
    """host:pid:boot, new at each start of a process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:12]}"


class UnansweredClaims:
    """Tokens of claims whose answers were lost. Such a claim may commit late: its jobs are searched for until it cannot."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[UUID, float] = {}
        self._look_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, token: UUID) -> None:
        """Search for the jobs of this claim from now on."""
        self._until[token] = time.monotonic() + self._seconds
        self._look_at = -math.inf

    def drop(self, tokens: Iterable[UUID]) -> None:
        """Stop searching for the jobs of these claims."""
        for token in tokens:
            self._until.pop(token, None)

    def due(self) -> list[UUID]:
        """The tokens to search for now; none shortly after the last search, so that not every claim waits for one."""
        now = time.monotonic()
        if not self._until or now < self._look_at:
            return []
        self._look_at = now + LOOK_AGAIN_SECONDS
        tokens = list(self._until)
        self._until = {token: until for token, until in self._until.items() if now < until}
        return tokens


class ClaimRepeated(Exception):
    """A claim with this id has taken jobs before; this one took none."""


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
        labels: Mapping[str, str] | None = None,
        slots: int | None = None,
        beside: "StoreSource | None" = None,
    ) -> None:
        """With `waits`, each claimed job has its queue time.

        `labels` are the worker's (None: those of the settings), and `slots` is how many it has (None: each job takes one).

        `beside` is the source of the same worker that claims, for the source of its heartbeat thread.
        Without `patient`, `finish` raises EndsPostponed instead of waiting for a run that another process has locked.
        """
        self._database = database
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._served = served
        self._served_pairs = served_pairs
        self._waits = waits
        self._patient = patient
        self._labels = parse_labels(database.settings.labels) if labels is None else labels
        self._slots = slots
        self._reserve = SlotReserve(slots)
        # random: workers that all began with the same tenant would give it more than its share
        self._cursor = Cursor(uuid4())
        self.crowded = False
        self.opens_in: float | None = None
        # whether the last claim left slots free since the next job needs more of them
        self.is_short = False
        # random: a source that claims only once begins with suspects or with ordinary jobs
        self._had_suspect = bool(random.getrandbits(1))
        self.unread: UnreadClaims = UnreadClaims() if beside is None else beside.unread
        self._unanswered = UnansweredClaims(lease_seconds + database.settings.statement_timeout_seconds)
        # tokens of claims with an id: the worker may have repeated the claim, and then keeps its jobs
        self._noted: set[UUID] = set()
        # held steps of runs, and held jobs that wait for runs. By lease, since the outcome of a lost attempt may be written
        # after the next attempt has begun
        self.of_runs: set[Lease] = set() if beside is None else beside.of_runs

    async def claim(self, wanted: int, *, claim_id: UUID | None = None) -> list[HeldJob]:
        """Claim up to `wanted` jobs, beginning with the tenant after the last claim's.

        Raises ClaimRepeated if a claim with this `claim_id` has taken jobs before.
        """
        await self.release_unanswered()
        claim = await self._claim(wanted, claim_id)
        for _ in range(LOOKS):
            while claim.again and not claim.jobs:
                claim = await self._claim(wanted, claim_id)
            if claim.jobs or not claim.busy:
                break
            await asyncio.sleep(random.uniform(*LOOK_SECONDS))  # noqa: S311
            claim = await self._claim(wanted, claim_id)
        return await self._receive(claim)

    async def claim_some(
        self, wanted: int, *, is_any_ready: bool = True, claim_id: UUID | None = None
    ) -> list[HeldJob]:
        """Claim up to `wanted` jobs, or one suspect: for callers that start all jobs together and wait for them.

        Alternates between the two. Only a worker that holds no job gets a suspect.
        """
        if not self._had_suspect and (held := await self.claim_suspect(idle=None, claim_id=claim_id)):
            self._had_suspect = True
            return held
        had_suspect, self._had_suspect = self._had_suspect, False
        self.opens_in = None
        held = await self.claim(wanted, claim_id=claim_id) if is_any_ready else []
        if held or not had_suspect:
            return held
        return await self.claim_suspect(idle=None, claim_id=claim_id)

    async def claim_suspect(
        self, *, idle: bool | None, free: int | None = None, claim_id: UUID | None = None
    ) -> list[HeldJob]:
        """Claim one suspect, or none. `idle`: whether this worker runs nothing; None: the database checks.

        `free` is how many slots are free; None: all.
        """
        most_slots = self._slots if free is None or self._slots is None else min(free, self._slots)
        await self.release_unanswered()
        claim = await self._run_claim(
            lambda tx, token: queue.claim_suspect(
                tx,
                worker=self._worker,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
                idle=idle,
                waits=self._waits,
                token=token,
                labels=self._labels,
                most_slots=most_slots,
            ),
            claim_id,
        )
        return await self._receive(claim)

    async def suspects_wait(self) -> bool:
        """Whether a suspect waits that this worker could claim if it were idle."""
        return await self._database.single(
            lambda tx: queue.has_suspect(
                tx,
                worker=self._worker,
                lease_seconds=self._lease_seconds,
                served=self._served,
                served_pairs=self._served_pairs,
                labels=self._labels,
                most_slots=self._slots,
            )
        )

    async def read_waiting_weight(self) -> float:
        """The sum of the weights of the tenants whose jobs wait for this worker."""
        return await self._database.single(
            lambda tx: queue.read_waiting_weight(
                tx, served=self._served, served_pairs=self._served_pairs, labels=self._labels
            )
        )

    async def _receive(self, claim: Claim) -> list[HeldJob]:
        """The jobs of a claim; none if the heartbeat thread has withdrawn it, since the event loop was blocked."""
        held = await self._build_held_jobs(claim)
        if self.unread.read(claim.token) or not held:
            return held
        try:
            await self.give_back(held)
        except (FairleadError, EndsPostponed):
            self._unanswered.add(claim.token)
        return []

    async def _build_held_jobs(self, claim: Claim) -> list[HeldJob]:
        of_runs = set(claim.of_runs)
        held = [HeldJob(claim.lease(job), job, job.job_id in of_runs) for job in claim.jobs]
        if of_runs:
            self.of_runs.update(one.lease for one in held if one.of_run)
        if any(job.trouble for job in claim.jobs):
            return await self._drop_unreadable(held)
        return held

    async def _drop_unreadable(self, held: list[HeldJob]) -> list[HeldJob]:
        """Give back the jobs whose secrets cannot be opened now, and fail those whose sealed values were changed."""
        unreadable = [(one.lease, end) for one in held if (end := end_unreadable(one.job)) is not None]
        try:
            await self.finish(unreadable)
        except (FairleadError, EndsPostponed) as error:  # their leases expire, and they are claimed again
            log.warning("unreadable_not_given_back", jobs=len(unreadable), why=str(error))
        return [one for one in held if one.job.trouble is None]

    async def _claim(self, wanted: int, claim_id: UUID | None = None) -> Claim:
        claim = await self._run_claim(
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
                labels=self._labels,
                most_slots=self._reserve.count_most_slots(wanted),
                prefer_seconds=self._database.settings.prefer_seconds,
            ),
            claim_id,
        )
        self._cursor = claim.cursor
        self.crowded = claim.crowded
        self.opens_in = claim.opens_in
        self.is_short = claim.short_of is not None and sum(job.slots for job in claim.jobs) < wanted
        self._reserve.note(is_short=self.is_short)
        return claim

    async def _run_claim(
        self, ask: Callable[[Tx, UUID], Awaitable[Claim]], claim_id: UUID | None = None
    ) -> Claim:
        """Run a claim. If its answer is lost, it may have taken jobs, or may commit later: its token is noted."""
        token = uuid4()
        self.unread.begin(token)
        try:
            if claim_id is None:
                claim = await self._database.single(lambda tx: ask(tx, token))
            else:
                claim = await self._database.transact(lambda tx: self._claim_once(tx, ask, token, claim_id))
        except BaseException as error:
            self.unread.read(token)
            if not isinstance(error, ClaimRepeated):
                self._unanswered.add(token)
                if claim_id is not None:
                    self._noted.add(token)
            raise
        if not claim.jobs:
            self.unread.read(token)
        return claim

    async def _claim_once(
        self, tx: Tx, ask: Callable[[Tx, UUID], Awaitable[Claim]], token: UUID, claim_id: UUID
    ) -> Claim:
        """Run a claim and note its id; raises ClaimRepeated, which rolls it back, if the id has taken jobs before."""
        claim = await ask(tx, token)
        jobs = [job.job_id for job in claim.jobs]
        if jobs and not await worker_claims.store_claim(
            tx, worker=self._worker, claim_id=claim_id, token=token, jobs=jobs
        ):
            raise ClaimRepeated
        return claim

    async def give_back(self, taken: Sequence[HeldJob], *, claim_id: UUID | None = None) -> None:
        """Release claimed jobs that were not started, unless the worker has repeated the claim with its id."""
        tokens = {one.lease.token for one in taken} if claim_id is not None else set()
        kept = await self._withdraw(tokens) if tokens else set()
        ends = [(one.lease, release_unstarted(one)) for one in taken if one.lease.token not in kept]
        if ends:
            await self.finish(ends)

    async def give_back_unstarted(self, held: Sequence[HeldJob]) -> None:
        """Return jobs to the queue: these, and those of claims whose answers the worker has not read."""
        await self.release_unread()
        if held:
            await self.give_back(held)

    async def release_unread(self) -> None:
        """Release the jobs of claims whose answers the worker has not read; it will not start them."""
        for token in self.unread.withdraw():
            self._unanswered.add(token)
        await self.release_unanswered()

    async def _withdraw(self, tokens: set[UUID]) -> set[UUID]:
        """Forget these claims. The returned ones were repeated: their jobs must not be released."""
        return await self._database.single(
            lambda tx: worker_claims.withdraw_claims(tx, worker=self._worker, tokens=sorted(tokens))
        )

    @property
    def has_unanswered_claims(self) -> bool:
        """Whether a claim's answer was lost recently."""
        return bool(self._unanswered)

    async def release_unanswered(self) -> None:
        """Release the jobs of claims whose answers were lost: none of them was started."""
        tokens = self._unanswered.due()
        if not tokens:
            return
        if noted := self._noted.intersection(tokens):
            kept = await self._withdraw(noted)
            self._unanswered.drop(kept)
            tokens = [token for token in tokens if token not in kept]
        if not self._unanswered:
            self._noted.clear()
        taken = await self._database.single(
            lambda tx: queue.list_claimed_leases(tx, worker=self._worker, tokens=tokens)
        )
        if taken:
            log.warning("unheard_claim_released", jobs=len(taken))
            self.of_runs.update(one.lease for one in taken if one.of_run)
            change = decide(RetryBudget(1, 0, 0, Backoff()), Released())
            ends = [(one.lease, replace(change, alone=one.is_suspect)) for one in taken]
            with suppress(EndsPostponed):  # the next search finds the postponed ones again
                await self.finish(ends)

    def list_of_runs(self, leases: Iterable[Lease]) -> set[Lease]:
        """Those of the leases whose jobs are steps of runs, or wait for runs."""
        return self.of_runs.intersection(leases) if self.of_runs else set()

    def note_of_runs(self, leases: Iterable[Lease]) -> None:
        """Note that the jobs of these leases, which another source has claimed, are steps of runs, or wait for runs."""
        self.of_runs.update(leases)

    async def heartbeat(self, leases: Sequence[Lease]) -> dict[Lease, HeartbeatResult]:
        """Renew leases. Leases that are missing from the result are lost."""
        return await self._database.single(
            lambda tx: queue.heartbeat(tx, leases, lease_seconds=self._lease_seconds)
        )

    async def finish(self, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
        """Write outcomes of attempts; safe to repeat, since the lease identifies each."""
        actor = f"worker:{self._worker}"
        if any(change.waits and lease not in self.of_runs for lease, change in ends):
            return await self._suspend(ends, actor)
        if not self.of_runs:
            return await self._database.reach(lambda tx: queue.finish(tx, ends, actor=actor))
        of_runs = [end for end in ends if end[0] in self.of_runs]
        others = [end for end in ends if end[0] not in self.of_runs]
        done: dict[UUID, JobStatus] = {}
        if others:
            done |= await self._database.reach(lambda tx: queue.finish(tx, others, actor=actor))
        if of_runs:
            done |= await self._finish_steps(of_runs, actor, done)
            self.of_runs.difference_update(lease for lease, _ in of_runs)
        return done

    async def _suspend(self, ends: Sequence[End], actor: str) -> dict[UUID, JobStatus]:
        """Write the ends of functions that wait and are no steps, in a transaction of their own, and then the others."""
        waiting = [end for end in ends if end[1].waits and end[0] not in self.of_runs]
        others = [end for end in ends if not end[1].waits or end[0] in self.of_runs]
        done = await self._database.reach(lambda tx: queue.suspend(tx, waiting, actor=actor))
        return done | await self.finish(others) if others else done

    async def _finish_steps(
        self, ends: Sequence[End], actor: str, others: dict[UUID, JobStatus]
    ) -> dict[UUID, JobStatus]:
        """Write the outcomes of steps together; run by run if another process has locked one of their runs."""
        if self._patient:
            return await self._finish_with_runs(ends, actor)
        try:
            return await self._finish_with_runs(ends, actor, lock_seconds=PATIENCE_SECONDS)
        except DatabaseBusy:
            log.info("finishing_run_by_run", jobs=len(ends))
        ids = [lease.job_id for lease, _ in ends]
        runs = await self._database.single(lambda tx: workflows.get_runs_of_steps(tx, ids))
        by_run: dict[UUID, list[End]] = {}
        for end in ends:
            by_run.setdefault(runs.get(end[0].job_id) or end[0].job_id, []).append(end)
        done, left = others, list[Lease]()
        for some in by_run.values():
            try:
                done |= await self._finish_with_runs(some, actor, lock_seconds=NO_PATIENCE_SECONDS)
            except DatabaseBusy:
                left += [lease for lease, _ in some]
        if left:
            self.of_runs.difference_update({lease for lease, _ in ends}.difference(left))
            raise EndsPostponed(done, left)
        return done

    async def _finish_with_runs(
        self, ends: Sequence[End], actor: str, *, lock_seconds: float | None = None
    ) -> dict[UUID, JobStatus]:
        return await self._database.reach(
            lambda tx: workflow_progress.finish_attempts(tx, ends, actor=actor, lock_seconds=lock_seconds)
        )
