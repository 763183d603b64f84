"""A discrete-event model of many cells: python -m fairlead.bench.cell_model --cells 1000.

It answers what cannot be measured on one machine: the throughput, latency and balance of many cells that share a fleet of
workers. docs/explanation/how-far-one-postgresql-goes.md has its assumptions and compares it with measured runs.
"""

import argparse
import heapq
import random
import statistics
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementCosts:
    """CPU seconds of PostgreSQL: of each statement, and of each job in it. Measured by `fairlead bench cells`."""

    enqueue: float = 0.00012
    claim: float = 0.0004
    claim_job: float = 0.00002
    finish: float = 0.0004
    finish_job: float = 0.00003


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPlan:
    """A system of cells and its load."""

    cells: int = 1
    tenants: int = 100
    # jobs a second of all tenants together
    arrivals: float = 1000.0
    # the nth tenant has 1/n^skew of the largest one's jobs
    skew: float = 0.8
    # whether tenants are spread by load, as `fairlead cells rebalance` does, or at random
    balanced: bool = True
    # processors of each cell's PostgreSQL; `shared` if all cells are on one machine
    cores: int = 4
    shared: bool = False
    worker_processes: int = 1
    # how many cells a worker process serves; 0: all
    cells_per_worker: int = 0
    slots: int = 100
    handler_seconds: float = 0.0
    # from a notification to the claim, and how long finished attempts wait for others
    wake_seconds: float = 0.001
    costs: StatementCosts = field(default_factory=StatementCosts)
    # the number of a cell whose PostgreSQL dies halfway
    dead_cell: int | None = None
    seconds: float = 10.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """What came of a plan. Latencies, in seconds, are from an enqueue to the start of its job."""

    jobs: int
    per_second: float
    p50: float
    p99: float
    # of the tenants of living cells, before and after a cell died
    p99_before: float
    p99_after: float
    cpu_per_job: float
    # the busiest cell's load compared with the mean
    imbalance: float
    jobs_per_claim: float
    connections_per_cell: float


class _Processors:
    """Processors that serve statements in the order in which they came."""

    def __init__(self, cores: int) -> None:
        self._free_at = [0.0] * cores
        self.used = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When a statement that comes now is done."""
        start = max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, start + seconds)
        self.used += seconds
        return start + seconds


class _Model:
    def __init__(self, plan: CellPlan) -> None:
        self.plan = plan
        self._random = random.Random(plan.seed)  # noqa: S311 - not for secrets
        shared = _Processors(plan.cores)
        self.processors = [shared if plan.shared else _Processors(plan.cores) for _ in range(plan.cells)]
        self.waiting: list[deque[float]] = [deque() for _ in range(plan.cells)]
        self.workers_of: list[list[int]] = [[] for _ in range(plan.cells)]
        per_worker = plan.cells_per_worker or plan.cells
        for worker in range(plan.worker_processes):
            first = worker * per_worker % plan.cells
            for place in range(min(per_worker, plan.cells)):
                self.workers_of[(first + place) % plan.cells].append(worker)
        self.free = [plan.slots] * plan.worker_processes
        self.asking: set[tuple[int, int]] = set()
        self.events: list[tuple[float, int, str, tuple[int, ...]]] = []
        self._numbers = count()
        self.latencies: list[tuple[float, float]] = []
        self.claims = 0
        self.rates = _spread(plan, self._random)
        self.ended_at = 0.0

    def at(self, time: float, kind: str, *about: int) -> None:
        heapq.heappush(self.events, (time, next(self._numbers), kind, about))

    def run(self) -> PlanOutcome:
        plan = self.plan
        for cell, rate in enumerate(self.rates):
            if rate:
                self.at(self._random.expovariate(rate), "arrive", cell)
        while self.events and self.events[0][0] < plan.seconds:
            now, _, kind, about = heapq.heappop(self.events)
            getattr(self, f"on_{kind}")(now, *about)
        return self._report()

    def is_dead(self, cell: int, now: float) -> bool:
        return cell == self.plan.dead_cell and now >= self.plan.seconds / 2

    def on_arrive(self, now: float, cell: int) -> None:
        self.at(now + self._random.expovariate(self.rates[cell]), "arrive", cell)
        if not self.is_dead(cell, now):
            done = self.processors[cell].serve(now, self.plan.costs.enqueue)
            self.at(done, "ready", cell)

    def on_ready(self, now: float, cell: int) -> None:
        self.waiting[cell].append(now)
        for worker in self.workers_of[cell]:
            self._ask(now + self.plan.wake_seconds, worker, cell)

    def _ask(self, time: float, worker: int, cell: int) -> None:
        if self.free[worker] and (worker, cell) not in self.asking:
            self.asking.add((worker, cell))
            self.at(time, "claim", worker, cell)

    def on_claim(self, now: float, worker: int, cell: int) -> None:
        number = min(self.free[worker], len(self.waiting[cell]))
        if not number or self.is_dead(cell, now):
            self.asking.discard((worker, cell))
            return
        self.claims += 1
        self.free[worker] -= number
        costs = self.plan.costs
        done = self.processors[cell].serve(now, costs.claim + number * costs.claim_job)
        for _ in range(number):
            self.latencies.append((now, done - self.waiting[cell].popleft()))
        self.at(done, "answer", worker, cell)
        spent = self._random.expovariate(1 / self.plan.handler_seconds) if self.plan.handler_seconds else 0.0
        self.at(done + spent + self.plan.wake_seconds, "finish", worker, cell, number)

    def on_answer(self, now: float, worker: int, cell: int) -> None:
        self.asking.discard((worker, cell))
        if self.waiting[cell]:
            self._ask(now, worker, cell)

    def on_finish(self, now: float, worker: int, cell: int, number: int) -> None:
        costs = self.plan.costs
        if not self.is_dead(cell, now):
            self.ended_at = self.processors[cell].serve(now, costs.finish + number * costs.finish_job)
        self.at(max(now, self.ended_at), "slots", worker, number)

    def on_slots(self, now: float, worker: int, number: int) -> None:
        self.free[worker] += number
        for cell in self._cells_of(worker):
            if self.waiting[cell]:
                self._ask(now, worker, cell)

    def _cells_of(self, worker: int) -> Iterator[int]:
        per_worker = self.plan.cells_per_worker or self.plan.cells
        first = worker * per_worker % self.plan.cells
        return ((first + place) % self.plan.cells for place in range(min(per_worker, self.plan.cells)))

    def _report(self) -> PlanOutcome:
        plan, half = self.plan, self.plan.seconds / 2
        all_of_them = sorted(waited for _, waited in self.latencies)
        before = sorted(waited for at, waited in self.latencies if at < half)
        after = sorted(waited for at, waited in self.latencies if at >= half)
        used = sum(one.used for one in {id(one): one for one in self.processors}.values())
        # each process has a pool, a heartbeat and a listener in each of its cells
        served = sum(map(len, self.workers_of)) / plan.cells
        mean = sum(self.rates) / plan.cells
        return PlanOutcome(
            jobs=len(all_of_them),
            per_second=len(all_of_them) / plan.seconds,
            p50=_quantile(all_of_them, 0.5),
            p99=_quantile(all_of_them, 0.99),
            p99_before=_quantile(before, 0.99),
            p99_after=_quantile(after, 0.99),
            cpu_per_job=used / max(1, len(all_of_them)),
            imbalance=max(self.rates) / mean if mean else 1.0,
            jobs_per_claim=len(all_of_them) / max(1, self.claims),
            connections_per_cell=served * 4,
        )


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0


def _spread(plan: CellPlan, chance: random.Random) -> list[float]:
    """The jobs a second of each cell."""
    shares = [1 / (place + 1) ** plan.skew for place in range(plan.tenants)]
    whole = sum(shares)
    rates = [0.0] * plan.cells
    if plan.balanced:
        # the largest tenants first, each into the cell with the least load
        heap = [(0.0, cell) for cell in range(plan.cells)]
        for share in shares:
            load, cell = heapq.heappop(heap)
            heapq.heappush(heap, (load + share, cell))
            rates[cell] += share
    else:
        for share in shares:
            rates[chance.randrange(plan.cells)] += share
    return [rate / whole * plan.arrivals for rate in rates]


def simulate(plan: CellPlan) -> PlanOutcome:
    """Run a plan."""
    return _Model(plan).run()


def find_capacity(plan: CellPlan, *, most_p99: float = 0.25) -> float:
    """The most arrivals a second that a plan carries with a p99 latency below `most_p99` seconds."""
    low, high = 0.0, 200_000.0 * plan.cells
    while high - low > high * 0.02:
        middle = (low + high) / 2
        outcome = simulate(replace(plan, arrivals=middle, seconds=min(plan.seconds, 200_000 / middle)))
        low, high = (middle, high) if outcome.p99 < most_p99 else (low, middle)
    return low


def main() -> None:
    """Print the outcome of a plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=1)
    parser.add_argument("--tenants", type=int, default=100_000)
    parser.add_argument("--arrivals", type=float, default=1000.0, help="jobs a second, of all tenants")
    parser.add_argument("--worker-processes", type=int, default=1)
    parser.add_argument("--cells-per-worker", type=int, default=0, help="0: all")
    parser.add_argument("--random", action="store_true", help="place tenants at random, not by load")
    parser.add_argument("--dead-cell", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = vars(parser.parse_args())
    rounds, asked["balanced"] = asked.pop("rounds"), not asked.pop("random")
    outcomes = [simulate(CellPlan(**asked, seed=seed)) for seed in range(1, rounds + 1)]
    for name in PlanOutcome.__dataclass_fields__:
        values = [getattr(one, name) for one in outcomes]
        print(f"{name:>20}  {statistics.median(values):,.5g}")  # noqa: T201 - its output


if __name__ == "__main__":
    main()
