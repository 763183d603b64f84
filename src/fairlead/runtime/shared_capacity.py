"""The slots of a process that serves several cells: shared in turns, by the weights of the waiting tenants.

Stride scheduling: each cell has a virtual time, which advances by 1/weight for each job that it claims. The cell whose
time is lowest is first, so that tenants of different cells get shares as if they were in one cell.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fairlead.lease_clock import lease_clock

# How many jobs a cell may claim before another cell with waiting tenants has claimed its part.
MOST_LEAD = 1000
# A cell that has not asked or answered for this long is left out: its database is slow, or away.
STALL_SECONDS = 1.0


class SharingWorker(Protocol):
    """A cell's worker, as the other cells of its process see it."""

    def count_held(self) -> int:
        """How many slots its jobs use."""

    def count_ahead(self) -> int:
        """How many jobs it will start in a moment; 0 if that is not known."""

    def wake(self) -> None:
        """Claim now."""

    def start_waiting_soon(self) -> None:
        """Start jobs that wait for a slot."""

    def is_idle(self) -> bool:
        """Whether it holds no job."""

    def has_settled(self) -> bool:
        """Whether its jobs have run for so long that none would be blamed for a death of the process."""

    def quiet_left(self) -> float:
        """For how many more seconds no job of another cell may start: a suspect runs alone here, or waits to."""


class Share:
    """One cell's part of the slots."""

    def __init__(self, capacity: "SharedCapacity", worker: SharingWorker) -> None:
        self._capacity = capacity
        self.worker = worker
        # the sum of the weights of the tenants that wait in this cell
        self.weight = 1.0
        # its virtual time
        self.passed = 0.0
        # whether its last claim was full, so that more jobs wait
        self.is_hungry = False
        # how many slots it wanted and did not get, and with how many at once it is content
        self.missing = self.enough = 0
        # whether its last claim failed: it gets slots, but nothing waits for it
        self.is_failing = False
        # how many jobs its claims that are not answered may return
        self.claiming = 0
        self._active_at = lease_clock()

    @property
    def is_stalled(self) -> bool:
        """Whether it neither waits for a slot nor uses its turn."""
        return self.is_failing or (not self.missing and lease_clock() - self._active_at > STALL_SECONDS)

    @property
    def contends(self) -> bool:
        """Whether it wants slots, as far as is known."""
        return bool(self.is_hungry or self.missing or self.claiming) and not self.is_stalled

    def offer(self, wanted: int, *, enough: int = 1) -> int:
        """How many of the wanted jobs may be claimed now. If fewer, the worker is woken when `enough` may be, or all it can get."""
        self.missing = 0
        number = self._capacity.count_offer(self, wanted)
        if number < wanted:
            self.missing, self.enough = wanted - number, min(enough, wanted - number)
            self._capacity.note_refusal()
        self._active_at = lease_clock()
        return number

    def begin_claim(self, wanted: int) -> None:
        """A claim of this many jobs begins."""
        self.missing = 0
        self.claiming += wanted
        self.passed += wanted / self.weight
        self._active_at = lease_clock()

    def end_claim(self, wanted: int, taken: int, *, failed: bool = False) -> None:
        """The claim has taken this many jobs, or has failed."""
        self.is_failing = failed
        self.claiming -= wanted
        self.passed -= (wanted - taken) / self.weight
        self.is_hungry = taken == wanted
        self._active_at = lease_clock()
        if taken < wanted:
            self._capacity.wake_waiting()

    def pause(self) -> None:
        """This cell claims nothing for now."""
        self.is_hungry, self.missing = False, 0
        self._capacity.wake_waiting()

    def leave(self) -> None:
        """This cell is not served any more."""
        self._capacity.remove(self)

    # Slots

    def has_room(self, slots: int) -> bool:
        """Whether this number of slots of the process is free."""
        return self._capacity.running + slots <= self._capacity.concurrency

    def count_ahead(self) -> int:
        """How many jobs this cell may hold while jobs are short and many."""
        return sum(one.worker.count_ahead() for one in self._capacity.shares)

    def start(self, slots: int) -> None:
        """One of its jobs starts, and takes this number of slots."""
        self._capacity.running += slots

    def end(self, slots: int) -> None:
        """One of its jobs has ended."""
        self._capacity.running -= slots
        self._capacity.start_elsewhere(self)

    def note_written(self) -> None:
        """Outcomes were written: their slots are free."""
        self._capacity.wake_waiting()
        self._capacity.wake_quiet(self)

    def note_ended(self) -> None:
        """A slot is free: wake the cells for which enough are."""
        self._capacity.wake_waiting(only_content=True)

    # Suspects

    def are_others(self, check: Callable[[SharingWorker], bool]) -> bool:
        """Whether this is so for the workers of all other cells."""
        return all(check(one.worker) for one in self._capacity.shares if one is not self)

    def count_quiet_left(self) -> float:
        """For how many more seconds no job may start, since a suspect of another cell runs alone or waits to."""
        return max((one.worker.quiet_left() for one in self._capacity.shares if one is not self), default=0.0)


class SharedCapacity:
    """The slots of a process: `concurrency` jobs of all cells together run at a time."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.shares: list[Share] = []
        self.running = 0
        self._timer: asyncio.TimerHandle | None = None

    def join(self, worker: SharingWorker, *, running: int = 0) -> Share:
        """Give a cell's worker its share."""
        share = Share(self, worker)
        share.passed = min((one.passed for one in self.shares), default=0.0)
        self.shares.append(share)
        self.running += running
        return share

    def remove(self, share: Share) -> None:
        """Give the share of a cell that is not served any more to the others."""
        if share in self.shares:
            self.shares.remove(share)
            self.wake_waiting()

    def count_offer(self, share: Share, wanted: int) -> int:
        """How many of the wanted jobs this cell may claim now."""
        others = [one for one in self.shares if one is not share and one.contends]
        if not others:
            return min(wanted, self._count_free())
        earliest = min(one.passed for one in others)
        jobs = max(2 * self.concurrency, min(MOST_LEAD, self.count_ahead()))
        lead = jobs / (share.weight + sum(one.weight for one in others))
        if not share.contends:
            # of the turns that it did not use, it gets no more back than a cell may be ahead
            share.passed = max(share.passed, earliest - lead)
        # slots for the waiting cells that are served before this one
        before = sum(one.missing for one in others if one.missing and one.passed < share.passed)
        turn = int((earliest + lead - share.passed) * share.weight)
        if turn < 1 and share.passed <= earliest:
            turn = 1
        return max(0, min(wanted, self._count_free() - before, turn))

    def count_ahead(self) -> int:
        """How many jobs all cells may hold while jobs are short and many; 0 if they are not.

        Each cell may hold as many as a worker with one cell would: a claim of many jobs costs little more than one of a few.
        """
        claiming = sum(1 for one in self.shares if one.contends)
        return claiming * sum(one.worker.count_ahead() for one in self.shares)

    def _count_free(self) -> int:
        held = sum(one.worker.count_held() + (0 if one.is_stalled else one.claiming) for one in self.shares)
        return max(self.concurrency, self.count_ahead()) - held

    def note_refusal(self) -> None:
        """A cell waits: look again when others may be left out."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STALL_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.wake_waiting(least=1)
        if any(one.missing for one in self.shares):
            # a cell that is away may have been asked later than the refusal that set this timer: it has not stalled yet
            self.note_refusal()

    def wake_waiting(self, *, only_content: bool = False, least: int | None = None) -> None:
        """Wake the workers that wait for slots: all if at least this many are free; `only_content`: those that get enough.

        By default, while jobs are short, a worker waits for half of a batch.
        """
        waiting = [one for one in self.shares if one.missing]
        if not waiting:
            return
        free = self._count_free()
        if free < 1:
            return
        if least is None:
            least = 1 if not self.count_ahead() else None
        for one in waiting:
            if free >= (one.enough if only_content else least or max(1, one.enough // 2)):
                one.worker.wake()

    def wake_quiet(self, share: Share) -> None:
        """Wake the other workers that wait for a quiet process."""
        for one in self.shares:
            if one is not share and one.worker.quiet_left():
                one.worker.wake()

    def start_elsewhere(self, share: Share) -> None:
        """Let the other cells start jobs that waited for a slot."""
        for one in self.shares:
            if one is not share:
                one.worker.start_waiting_soon()
