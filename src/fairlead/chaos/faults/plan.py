"""Which faults come when: an endless sequence for each lane, from a seed, and its execution.

Faults of one lane come one after the other, and those of different lanes overlap.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec
import structlog

from fairlead.chaos.faults.fault import EXPECTED, FaultKind, FaultScene, Lane, NothingToHit
from fairlead.chaos.faults.kinds import choose_kinds
from fairlead.chaos.faults.proxy import Proxies
from fairlead.chaos.history import FaultRecord, HistoryWriter, now
from fairlead.chaos.stage import Stage

__all__ = ["Proxies", "inject_faults", "list_left_out", "plan_lane"]

log = structlog.get_logger(__name__)

# Seconds between two faults of a lane. PostgreSQL needs time to recover, and the workers after it.
PAUSES: Mapping[Lane, tuple[float, float]] = {
    "workers": (0.5, 3.0),
    "services": (1.0, 5.0),
    "clocks": (10.0, 30.0),
    "connections": (1.0, 5.0),
    "sessions": (1.0, 5.0),
    "postgres": (35.0, 75.0),
    "keys": (2.0, 20.0),
}
# The first fault of each lane comes early, so that a short run has some of each.
FIRST_PAUSE = (0.5, 6.0)
READY_SECONDS = 30.0


class PlannedFault(msgspec.Struct, frozen=True):
    """A fault of a lane: the pause before it, its kind, and the seed of its choices."""

    pause: float
    kind: FaultKind
    seed: int


def plan_lane(seed: int, lane: Lane, kinds: Sequence[FaultKind]) -> Iterator[PlannedFault]:
    """The faults of a lane, without end. Each kind comes as often as its share says before all come again."""
    chance = random.Random(f"{seed} {lane}")  # noqa: S311
    deck = [kind for kind in kinds if kind.lane == lane for _ in range(kind.share)]
    pauses = FIRST_PAUSE
    while deck:
        chance.shuffle(deck)
        for kind in deck:
            yield PlannedFault(chance.uniform(*pauses), kind, chance.getrandbits(32))
            pauses = PAUSES[lane]


def list_left_out(stage: Stage, proxies: Proxies, kinds: Sequence[str] | None = None) -> dict[str, str]:
    """The kinds that this stage cannot have, and why."""
    reasons = {kind.name: kind.why_not(stage, proxies) for kind in choose_kinds(kinds)}
    return {name: why for name, why in reasons.items() if why is not None}


async def inject_faults(
    stage: Stage,
    proxies: Proxies,
    *,
    seed: int,
    history: HistoryWriter,
    until: float,
    kinds: Sequence[str] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Do faults until this time (of `history.now`) or until `stop` is set; when this returns, all are over."""
    possible = [kind for kind in choose_kinds(kinds) if kind.why_not(stage, proxies) is None]
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for lane in PAUSES:
            plan = plan_lane(seed, lane, possible)
            group.create_task(_run_lane(stage, proxies, plan, history, over), name=f"faults-{lane}")
        with suppress(TimeoutError):
            await asyncio.wait_for((stop or asyncio.Event()).wait(), max(0.0, until - now()))
        over.set()


async def _run_lane(
    stage: Stage, proxies: Proxies, plan: Iterator[PlannedFault], history: HistoryWriter, over: asyncio.Event
) -> None:
    for fault in plan:
        scene = FaultScene(stage, proxies, fault.seed, over)
        await scene.pause(fault.pause)
        if over.is_set():
            return
        await inject_fault(fault.kind, scene, history)
        await _wait_for_recovery(scene, over)


async def inject_fault(kind: FaultKind, scene: FaultScene, history: HistoryWriter) -> None:
    """Do one fault, and record it. A fault that another one prevents is recorded with the reason."""
    hit = True
    try:
        await kind.inject(scene)
    except NothingToHit as error:
        hit = False
        scene.notes.append(str(error))
    except EXPECTED as error:
        hit = scene.has_begun
        scene.notes.append(f"{type(error).__name__}: {error}")
    over_at = scene.over_at or now()
    record = FaultRecord(
        scene.at, over_at, scene.kind or kind.name, scene.target, scene.pids, "; ".join(scene.notes), hit
    )
    history.write(record)
    log.info("fault", kind=record.kind, target=record.target, note=record.note, hit=hit)


async def _wait_for_recovery(scene: FaultScene, over: asyncio.Event) -> None:
    """Give the process that took the place of a dead one time to work, so that faults hit working processes."""
    if scene.recovering is None:
        return
    ready = asyncio.create_task(scene.recovering.wait_until_ready(READY_SECONDS))
    ended = asyncio.create_task(over.wait())
    try:
        await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            await ready
    except EXPECTED as error:
        log.warning("process_slow_to_recover", process=scene.recovering.name, why=str(error))
    finally:
        ready.cancel()
        ended.cancel()
        await asyncio.gather(ready, ended, return_exceptions=True)
