"""A worker: claim → run → decide → finish, over a JobSource."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from fairlead.errors import FairleadError
from fairlead.lease_clock import lease_clock
from fairlead.model.job import Lease
from fairlead.model.outcome import Canceled, Change, Failed, Outcome, Released, Snoozed, decide
from fairlead.runtime import failure_log
from fairlead.runtime.finisher import Finisher
from fairlead.runtime.heartbeat import MARGIN, Heartbeat
from fairlead.runtime.job_source import (
    HeldJob,
    JobSource,
    SuspectSource,
    keep_suspect,
    lease_fields,
    release_unstarted,
)
from fairlead.runtime.joined_attempts import EndReader, JoinedAttempts
from fairlead.runtime.pace import CLAIM_BATCH, Pace
from fairlead.runtime.service import wait_any
from fairlead.runtime.shared_capacity import Share, SharedCapacity
from fairlead.runtime.suspect_turns import SuspectTurns
from fairlead.runtime.unstarted import UnstartedJobs
from fairlead.runtime.worker_attempt import Start, WorkerAttempt

log = structlog.get_logger(__name__)

# how many handlers start before the event loop runs other tasks: a delayed finish keeps the database idle
START_BATCH = 50
# Steps of workflow runs start together, so that few writes have all their outcomes: each write also advances the runs, which
# costs for a hundred steps not much more than for one.
START_STEPS_BATCH = 500
# How many ended attempts free their slots before their outcomes are written: a worker with few slots would wait most
# of the time.
MOST_UNWRITTEN = 500
# While the queue is full and jobs are short, a worker claims the jobs that it will start in this time, also beyond its
# slots: a claim of many jobs costs little more than one of a few.
AHEAD_SECONDS = 0.05
# Jobs that were claimed ahead and have not started in this time go back to the queue: the jobs before them are long.
GIVE_BACK_SECONDS = 0.25
STOP_SECONDS = 10.0
MOMENT_SECONDS = 0.05
# The longest pause after failed claims, if other cells are served, too.
LONGEST_PAUSE_SECONDS = 10.0
# A claim that took longer than this part of a lease leaves too little of it: its jobs would soon be stopped as lost.
STALE = 0.5


class ClaimResult(NamedTuple):
    """The result of a claim: the slots that its jobs take, and whether it took all that were wanted."""

    slots: int
    full: bool


def _snooze_briefly(held: HeldJob) -> Change:
    """The change that returns a job to the queue for a moment, without charging an attempt."""
    return keep_suspect(held, decide(held.job, Snoozed(random.uniform(0.1, 0.5))))  # noqa: S311


class Worker:
    """Claims no more jobs than will start at once, runs them concurrently, and writes their outcomes in batches."""

    def __init__(
        self,
        source: JobSource,
        start: Start,
        *,
        concurrency: int,
        lease_seconds: float,
        poll_seconds: float,
        later: Callable[[], None] = lambda: None,
        suspects: SuspectSource | None = None,
        worker_id: str | None = None,
        most_unwritten: int | None = None,
        drain_callbacks: Sequence[Callable[[], None]] = (),
        ends: EndReader | None = None,
    ) -> None:
        """`later` is called when a job was queued for later; `worker_id` is for log lines.

        Without `suspects` the worker runs no suspects. `drain_callbacks` are called when it begins to drain.
        """
        self._worker_id = worker_id
        self._drain_callbacks = drain_callbacks
        self._joined = None if ends is None else JoinedAttempts(ends, self)
        self._most_unwritten = MOST_UNWRITTEN if most_unwritten is None else most_unwritten
        self._source = source
        self._suspects = suspects
        self._turns = SuspectTurns(lease_seconds, poll_seconds)
        # the suspect beside which no other job may start
        self._on_probation: WorkerAttempt | None = None
        self._begin = start
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._lease_seconds = lease_seconds
        self._attempts: dict[Lease, WorkerAttempt] = {}
        self._running = 0
        # the slots of the running attempts, and those that waiting ones take beyond one each
        self._used_slots = 0
        self._extra_waiting = 0
        # if this process serves several cells: this cell's part of the slots
        self._share: Share | None = None
        # claimed and not started: all slots are in use
        self._waiting: deque[WorkerAttempt] = deque()
        # those of the held jobs that no handler has begun: the heartbeat thread may give them back
        self._unstarted = UnstartedJobs()
        self._pace = Pace()
        self._cramped = False
        self._freed = 0
        self._ended = 0
        self._is_starting = False
        self._is_draining = False
        self._failing_since: float | None = None
        self._failures = 0
        self._quiet = asyncio.Event()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.finisher = Finisher(source, self.record_written, later, about=self.log_fields)
        self.heart = Heartbeat(
            lease_seconds,
            canceled=self._receive_cancel,
            lost=self._receive_loss,
            about=self.log_fields,
            may_have_ended=self._may_have_ended,
            ended=self._receive_end,
            unstarted=self._unstarted,
            write_ended=self.finisher.write_beside,
        )
        self.done = 0

    @property
    def running(self) -> int:
        return len(self._attempts)

    @property
    def ended(self) -> int:
        """How many attempts have ended here."""
        return self._ended

    def tenant_of(self, lease: Lease) -> UUID | None:
        """The tenant of a lease; None if the attempt has ended. Safe from any thread."""
        attempt = self._attempts.get(lease)
        return None if attempt is None else attempt.held.job.tenant_id

    def list_logging(self) -> list[WorkerAttempt]:
        """The running attempts that have logged."""
        return [one for one in self._attempts.values() if one.run is not None and one.run.is_logging]

    def wake(self) -> None:
        """Claim now: there may be ready jobs."""
        self._wake.set()

    # Sharing the slots with the workers of other cells

    def share_slots(self, capacity: SharedCapacity) -> Share:
        """Share the slots of this process with the workers of other cells, from now on."""
        if self._share is None:
            self._share = capacity.join(self, running=self._used_slots)
        return self._share

    def count_held(self) -> int:
        """How many slots are in use. Ended attempts use none, although their outcomes are not written yet."""
        waiting = len(self._waiting)
        unwritten = len(self._attempts) - self._running - waiting
        return self._used_slots + waiting + self._extra_waiting + max(0, unwritten - self._most_unwritten)

    def count_free_slots(self) -> int:
        """How many slots no job uses or waits for; attempts whose outcomes are not written take one."""
        extra = self._used_slots - self._running + self._extra_waiting
        return self._concurrency - len(self._attempts) - extra

    def count_ahead(self) -> int:
        """How many jobs will start in a moment; 0 if that is not known."""
        return self._pace.jobs_in(AHEAD_SECONDS)

    def start_waiting_soon(self) -> None:
        """Start jobs that wait for a slot."""
        if self._waiting:
            self._start_soon()

    def is_idle(self) -> bool:
        """Whether it holds no job."""
        return not self._attempts

    def quiet_left(self) -> float:
        """For how many more seconds no job of another cell may start: a suspect runs alone here, or waits to."""
        if self._on_probation is not None:
            return self._turns.probation_left()
        return max(MOMENT_SECONDS, self._turns.until_look()) if self._turns.is_quiet else 0.0

    def set_draining(self, *, draining: bool) -> None:
        """Claim nothing more, or claim again; running jobs continue. May be called from any thread."""
        if draining != self._is_draining:
            self._is_draining = draining
            log.warning("worker_draining" if draining else "worker_resumed", running=self.running)
            self._loop.call_soon_threadsafe(self._wake.set)

    # Claiming

    async def claim_until(self, stop: asyncio.Event, worn_out: Callable[[], bool] = lambda: False) -> None:
        """Claim and start jobs until `stop` is set, or until `worn_out` says that this process must be replaced."""
        stopping = asyncio.create_task(self._wake_at(stop))
        try:
            await self._claim_until(stop, worn_out)
        finally:
            stopping.cancel()
            if self._share is not None:
                self._share.pause()
            self._give_back(len(self._waiting))

    async def _wake_at(self, stop: asyncio.Event) -> None:
        """Forward `stop` to the wake event: waiting for two events would cost as much as a claim of one job."""
        await stop.wait()
        self._wake.set()

    async def _claim_until(self, stop: asyncio.Event, worn_out: Callable[[], bool]) -> None:
        while not stop.is_set() and not worn_out():
            self._wake.clear()
            if self._is_draining:
                self._pause_share()
                self._give_back(len(self._waiting))
                await self._wake.wait()
                continue
            if seconds := await self._hold_off():
                self._pause_share()
                await wait_any(self._wake, seconds=seconds)
                continue
            free = self._count_claimable()
            # few slots are free while a batch of outcomes is written: wait, so that one claim fills all of them
            self._cramped = free < 1 or (free < self._batch and self.finisher.writing)
            if self._cramped:
                await self._wake.wait()
                continue
            # handlers of the last claim run before the next claim
            await asyncio.sleep(0)
            if not await self._claim_and_start(min(free, self._batch), stop):
                seconds = self._count_pause() or await self._start_suspect_instead()
                if (opens_in := self._source.opens_in) is not None:
                    seconds = min(seconds, opens_in)
                await wait_any(self._wake, seconds=seconds)

    def _count_pause(self) -> float:
        """Seconds to leave alone a database whose claims fail; 0 if they do not. A lone worker only polls."""
        if self._share is None or not self._failures:
            return 0.0
        pause = min(LONGEST_PAUSE_SECONDS, self._poll_seconds * 2.0 ** (self._failures - 1))
        return pause * random.uniform(0.8, 1.2)  # noqa: S311

    # Suspects: a worker's death is charged to a job only if the worker ran nothing else

    async def _hold_off(self) -> float:
        """Seconds to claim nothing, since a suspect runs alone or waits to; 0 to claim as usual."""
        if self._share is not None and not self._turns.is_quiet and (quiet := self._share.count_quiet_left()):
            return quiet
        if self._on_probation is not None:
            if left := self._turns.probation_left():
                return left
            self._end_probation()
        if self._suspects is None or self._waiting or self._count_free() < 1:
            return 0.0
        if self._turns.is_quiet:
            left = 0.0 if self._is_process_idle() else self._turns.until_look()
            return left or await self._try_suspect(self._suspects)
        is_time = self._turns.is_time_to_look(is_idle=not self._attempts)
        return await self._try_suspect(self._suspects) if is_time else 0.0

    async def _start_suspect_instead(self) -> float:
        """Start a suspect, since a claim returned nothing; seconds until the next claim."""
        self._turns.end_ordinary()
        seconds = 0.0
        if self._suspects is not None and self._turns.is_time_to_look():
            seconds = await self._try_suspect(self._suspects)
        return seconds or self._poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311

    async def _try_suspect(self, suspects: SuspectSource) -> float:
        try:
            return await self._look_for_suspect(suspects)
        except FairleadError as error:
            log.warning("suspects_not_looked_for", why=error.message)
            self._turns.found_none()
            return 0.0

    async def _look_for_suspect(self, suspects: SuspectSource) -> float:
        is_idle = self._is_process_idle()
        if is_idle or self._have_all_settled():
            asked_at = lease_clock()
            if held := await suspects.claim_suspect(
                idle=is_idle, free=None if is_idle else self._count_free()
            ):
                return await self._start_suspect(held, asked_at)
            if is_idle:
                self._turns.found_none()
                return 0.0
        if not await suspects.suspects_wait():
            self._turns.found_none()
            return 0.0
        return self._turns.until_look() if self._turns.volunteer() else 0.0

    def has_settled(self) -> bool:
        """Whether its jobs have run for so long that none would be blamed for a death of the process."""
        now = lease_clock()
        return all(attempt.settles_at <= now for attempt in self._attempts.values())

    def _is_process_idle(self) -> bool:
        """Whether this process holds no job of any cell."""
        return not self._attempts and (
            self._share is None or self._share.are_others(lambda one: one.is_idle())
        )

    def _have_all_settled(self) -> bool:
        others = self._share is None or self._share.are_others(lambda one: one.has_settled())
        return others and self.has_settled()

    async def _start_suspect(self, held: list[HeldJob], asked_at: float) -> float:
        [suspect] = held
        self._turns.begin(suspect.job.probation)
        self._receive(held, asked_at)
        await self._start_all()
        attempt = self._attempts.get(suspect.lease)
        if attempt is None or not self._turns.probation_left():
            return 0.0
        self._on_probation = attempt
        return self._turns.probation_left()

    def _end_probation(self) -> None:
        self._on_probation = None
        self._turns.end_probation()

    def _count_free(self) -> int:
        """How many more slots may be claimed for. Ended attempts count as free before their outcomes are written."""
        return self._most_held - self.count_held()

    def _count_claimable(self) -> int:
        """How many more jobs may be claimed now: also by the shares of other cells."""
        free = self._count_free()
        if self._share is None or free < 1:
            return free
        return self._share.offer(min(free, self._batch), enough=self._batch)

    def _pause_share(self) -> None:
        if self._share is not None:
            self._share.pause()

    @property
    def _most_held(self) -> int:
        """How many jobs may run, or wait here to run: more than the slots while jobs are short and many."""
        if self._share is not None:
            return max(self._concurrency, self._share.count_ahead())
        return max(self._concurrency, self._pace.jobs_in(AHEAD_SECONDS))

    @property
    def _batch(self) -> int:
        """How many jobs to claim at once: half of those claimed ahead, so that they run while the others are claimed."""
        return min(CLAIM_BATCH, max(self._concurrency, self._most_held // 2))

    async def _claim_and_start(self, wanted: int, stop: asyncio.Event) -> bool:
        """Claim and start jobs, and claim again while claims are full. Returns whether the last claim returned a job."""
        taken = await self._claim(wanted)
        while (
            taken.full
            and not stop.is_set()
            and not self._is_draining
            and self._count_claimable() >= self._batch
        ):
            # the next claim runs while these jobs start
            more = asyncio.create_task(self._claim(self._batch))
            await asyncio.sleep(0)
            await self._start_all(more)
            taken = await more
        await self._start_all()
        return taken.slots > 0

    async def _claim(self, wanted: int) -> ClaimResult:
        asked_at, freed, slots = lease_clock(), self._freed, 0
        share = self._share  # another cell may join while this claim runs
        if share is not None:
            share.begin_claim(wanted)
        try:
            held = await self._source.claim(wanted)
            slots = sum([one.job.terms.slots for one in held])
            self._receive(held, asked_at)
            self._log_recovery()
            if self._source.crowded and self._freed != freed:
                self._wake.set()  # an attempt was written during the claim: a limit may have room again
        except FairleadError as error:
            log.warning("claim_failed", why=error.message)
            self._failing_since = self._failing_since or asked_at
            self._failures = min(self._failures + 1, 10)
        finally:
            if share is not None:
                share.end_claim(wanted, slots, failed=bool(self._failures))
        taken = ClaimResult(slots, slots >= wanted)
        self._pace.measure(self._ended, queue_is_full=taken.full)
        return taken

    def _log_recovery(self) -> None:
        """Log that claims succeed again."""
        if self._failing_since is not None:
            log.warning("claims_again", after_seconds=round(lease_clock() - self._failing_since, 1))
            self._failing_since, self._failures = None, 0

    def _receive(self, held: list[HeldJob], asked_at: float) -> None:
        """Hold the jobs of a claim, which was sent at `asked_at`, until they start."""
        if held and lease_clock() - asked_at > self._lease_seconds * STALE:
            log.warning("claim_too_late", jobs=len(held))
            self._hand_back(held, asked_at)
            return
        leases = [one.lease for one in held]
        self.heart.hold(leases, asked_at)
        self._unstarted.add(held)
        then, fence = self._record_outcome, self.heart.fence_if_late
        for one in held:
            attempt = WorkerAttempt(one, then, self._worker_id, self._unstarted, fence)
            self._attempts[one.lease] = attempt
            if one.job.terms.slots > 1:
                # its definition may have changed since: a job that needs more slots than there are runs alone
                attempt.slots = min(one.job.terms.slots, self._concurrency)
                self._extra_waiting += attempt.slots - 1
            self._waiting.append(attempt)

    async def _start_all(self, claiming: "asyncio.Task[ClaimResult] | None" = None) -> None:
        """Start the jobs that wait, as far as there are slots, or until this claim is answered: then the next one is due."""
        while self._start_waiting():
            await asyncio.sleep(0)
            if claiming is not None and claiming.done():
                return
        if self._waiting:
            self._loop.call_later(GIVE_BACK_SECONDS, self._give_back_old, self._waiting[-1])

    def _hand_back(self, held: list[HeldJob], asked_at: float) -> None:
        """Return jobs that were not started to the queue; each keeps its slot and its lease until that is written."""
        self.heart.hold([one.lease for one in held], asked_at)
        for one in held:
            self._attempts[one.lease] = WorkerAttempt(one, self._record_outcome, self._worker_id)
            self.finisher.add(one.lease, _snooze_briefly(one))

    def _give_back_old(self, last: WorkerAttempt) -> None:
        """Give back the jobs up to this one, if it still waits: they were claimed together, or before."""
        if last in self._waiting:
            self._pace.forget()
            self._give_back(self._waiting.index(last) + 1)

    def _give_back(self, number: int) -> None:
        """Return the first jobs that wait for a slot to the queue, without charging an attempt."""
        for _ in range(number):
            attempt = self._waiting.popleft()
            self._extra_waiting -= attempt.slots - 1
            self._give_back_one(attempt)

    def _give_back_one(self, attempt: WorkerAttempt) -> None:
        """Return a job that has not started to the queue, if the heartbeat thread has not done so."""
        is_lost = not attempt.begin() or attempt.lost
        self.finisher.add(attempt.held.lease, release_unstarted(attempt.held), is_lost=is_lost)

    # Running

    def _start_waiting(self) -> bool:
        """Start as many jobs as have slots, up to a batch. Whether there may be more to start now."""
        now, unstarted = lease_clock(), self._unstarted.jobs
        settles_at = now + self._turns.settling_seconds
        of_run = bool(self._waiting) and self._waiting[0].held.of_run
        for _ in range(START_STEPS_BATCH if of_run else START_BATCH):
            if not self._waiting:
                return False
            slots = self._waiting[0].slots
            if self._used_slots + slots > self._concurrency:
                return False
            if self._share is not None and not self._share.has_room(slots):
                return False
            attempt = self._waiting.popleft()
            self._extra_waiting -= slots - 1
            if id(attempt.held) not in unstarted:
                self._give_back_one(attempt)
                continue
            if self._share is not None:
                self._share.start(slots)
            self._used_slots += slots
            probation = attempt.held.job.probation
            attempt.settles_at = now + probation if probation else settles_at
            self._running += 1
            if attempt.canceled or attempt.lost:
                attempt.handle_end(Canceled())
            else:
                self._begin(attempt)
        return True

    def _start_more(self) -> None:
        """Start jobs that waited for the slots of ended ones."""
        self._is_starting = False
        if self._start_waiting():
            self._start_soon()

    def _start_soon(self) -> None:
        if not self._is_starting:
            self._is_starting = True
            self._loop.call_soon(self._start_more)

    def _record_outcome(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        self._running -= 1
        self._used_slots -= attempt.slots
        if not attempt.is_given_back:
            self._ended += 1
        if self._share is not None:
            self._share.end(attempt.slots)
        if self._waiting:
            self._start_soon()
        if not self._running:
            self._quiet.set()
        if self._share is not None:
            self._share.note_ended()
        elif self._cramped and self._count_free() >= self._batch:
            self._wake.set()
        if attempt.joined is not None and self._joined is not None:
            self._joined.settle_soon(attempt, outcome)
        else:
            self.write_outcome(attempt, outcome)

    def write_outcome(self, attempt: WorkerAttempt, outcome: Outcome) -> None:
        """Write the outcome of an attempt, with those of others."""
        if attempt.lost or attempt.is_given_back:
            # its lease could not be renewed, or was given back: if it is still valid, the job is not charged
            self.finisher.add(attempt.held.lease, self._change(attempt, Released()), is_lost=True)
            return
        if attempt.released and isinstance(outcome, Canceled):
            outcome = Released()
        change = self._change(attempt, outcome)
        if isinstance(outcome, Failed):
            failure_log.log_failure(attempt.held.job, outcome, change, self._worker_id)
        self.finisher.add(attempt.held.lease, change)

    def _may_have_ended(self, lease: Lease) -> bool:
        """Whether its outcome is being written, here or by its handler in its own transaction; safe from any thread."""
        attempt = self._attempts.get(lease)
        return self.finisher.is_writing(lease) or (attempt is not None and attempt.joined is not None)

    def _change(self, attempt: WorkerAttempt, outcome: Outcome) -> Change:
        change = attempt.change(outcome)
        if isinstance(outcome, Released) and attempt.settles_at > lease_clock():
            return keep_suspect(attempt.held, change)
        return change

    def record_written(self, leases: list[Lease]) -> None:
        """The outcomes of these attempts are in the database."""
        self.done += len(leases)
        self.forget(leases)

    def forget(self, leases: list[Lease]) -> None:
        """Hold these attempts no longer."""
        for lease in leases:
            attempt = self._attempts.pop(lease, None)
            if attempt is not None and attempt is self._on_probation:
                self._end_probation()
                self._wake.set()
        self.heart.drop(leases)
        self._freed += len(leases)
        if self._cramped or self._source.crowded or self._turns.is_quiet:
            self._wake.set()
        if self._share is not None:
            self._share.note_written()

    def log_fields(self, lease: Lease) -> dict[str, Any]:
        """The log fields of a lease's attempt; safe from any thread."""
        attempt = self._attempts.get(lease)
        return (
            lease_fields(lease)
            if attempt is None
            else failure_log.job_log_fields(attempt.held.job, self._worker_id)
        )

    # Callbacks of the heartbeat thread

    def _receive_cancel(self, lease: Lease) -> None:
        self._loop.call_soon_threadsafe(self._cancel, lease)

    def _receive_loss(self, lease: Lease) -> None:
        if attempt := self._attempts.get(lease):
            attempt.lost = True  # at once: the event loop may start it before it calls `lose`
        self._loop.call_soon_threadsafe(self.lose, lease)

    def _receive_end(self, lease: Lease) -> None:
        self._loop.call_soon_threadsafe(self._check_end, lease)

    def _check_end(self, lease: Lease) -> None:
        attempt = self._attempts.get(lease)
        if attempt is not None and attempt.joined is not None and self._joined is not None:
            self._joined.check_soon(attempt)

    def _cancel(self, lease: Lease) -> None:
        if attempt := self._attempts.get(lease):
            attempt.ask_to_stop()

    def lose(self, lease: Lease) -> None:
        """Stop the handler: its lease is lost."""
        if attempt := self._attempts.get(lease):
            # of the margin that the heartbeat leaves, the rest is for the kill itself
            attempt.lose(self._lease_seconds * MARGIN / 3)

    # Ending

    async def drain(self, seconds: float, abandon: asyncio.Event) -> None:
        """Let running jobs end within `seconds`, or until `abandon` is set; release the rest; write all outcomes."""
        for begin_drain in self._drain_callbacks:
            begin_drain()
        await self._wait_for_attempts(seconds, abandon)
        for attempt in list(self._attempts.values()):
            attempt.released = True
            attempt.ask_to_stop()  # no effect on ended attempts
        # also handlers of an abandoned worker get the time to stop
        await self._wait_for_attempts(STOP_SECONDS, asyncio.Event() if abandon.is_set() else abandon)
        if self._joined is not None:
            await self._joined.wait_until_settled()
        await self.finisher.wait_until_written()

    async def _wait_for_attempts(self, seconds: float, abandon: asyncio.Event) -> None:
        """Wait until no attempt runs, for at most `seconds`, or until `abandon` is set."""
        self._quiet.clear()
        if self._running:
            await wait_any(abandon, self._quiet, seconds=seconds)
