"""Walk through queue and record in short transactions, so that no migration and no vacuum waits for it."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.actions.checks import SLEEPER_SECONDS
from fairlead.db.tx import Database, Tx
from fairlead.model.inconsistency import Inconsistency, InconsistencyKind
from fairlead.model.finding import Finding, Verdict
from fairlead.store import checks, consistency

# The number of newest jobs and runs that a walk checks if it is not full.
NEWEST = 20_000
NEWEST_RUNS = 1000
# Rows in one piece of the continuous walk: about 20 ms on a busy server.
SAMPLED = 1000


async def walk(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    """Every fault, once: of all jobs, or of the newest and the unfinished ones."""
    seen: set[Inconsistency] = set()
    async for fault in _walk(database, full=full):
        if fault not in seen:
            seen.add(fault)
            yield fault


async def _walk(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    for look in (_sleepers, consistency.leases, consistency.levels):
        for fault in await database.transact(look):
            yield fault
    for walked in (_jobs(database, full=full), _keys(database, full=full), _runs(database, full=full)):
        async for fault in walked:
            yield fault
    if full:
        for tenant_id in await database.transact(consistency.tenants):
            for fault in await database.transact(
                partial(consistency.counts, tenant_id=tenant_id), unhurried=True
            ):
                yield fault


async def _sleepers(tx: Tx) -> list[Inconsistency]:
    return [
        Inconsistency(InconsistencyKind.SLEEPING_PARENT, one.job_id, f"waits for run {one.run_id}, which is over")
        for one in await checks.sleepers(tx, seconds=SLEEPER_SECONDS)
    ]


async def _jobs(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = None if full else await database.transact(partial(consistency.newest_place, look=NEWEST))
    while True:
        piece = await database.transact(partial(consistency.jobs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return


async def _keys(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = consistency.KeyPlace()
    while True:
        faults, after = await database.transact(partial(consistency.keys, place=place))
        for fault in faults:
            yield fault
        if after is None or not full:
            return
        place = after


async def _runs(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = None if full else await database.transact(partial(consistency.newest_run, look=NEWEST_RUNS))
    while True:
        piece = await database.transact(partial(consistency.runs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return


# A piece at a time, as a duty


class Walked(msgspec.Struct, omit_defaults=True):
    """The progress of a lap: its phase, its place, and the number of faults so far."""

    phase: str = "jobs"
    place: UUID | None = None
    key_hash: bytes = b""
    faults: int = 0


class Sampled(NamedTuple):
    """The faults of a piece of the walk, and the place of the next piece; None: the lap is over."""

    faults: list[Inconsistency]
    place: str | None


async def sample(tx: Tx, place: str | None) -> Sampled:
    """Check the next piece of the record, and store the finding as the check `consistency`."""
    walked = _walked.decode(place) if place else Walked()
    faults, after = await _PHASES[walked.phase](tx, walked)
    found = walked.faults + len(faults)
    if after is None or faults:
        await checks.put(tx, [judge_lap(found, faults, is_over=after is None)])
    if after is None:
        return Sampled(faults, None)
    after.faults = found
    return Sampled(faults, msgspec.json.encode(after).decode())


def judge_lap(found: int, faults: Sequence[Inconsistency], *, is_over: bool) -> Finding:
    """The finding of a lap through the whole record, or of its part so far."""
    if not found:
        return Finding("consistency", Verdict.OK, "queue and record agree, of all jobs", value=0)
    shown = "; ".join(str(one) for one in faults[:5]) or "see inconsistency in the logs"
    so_far = "" if is_over else " so far"
    return Finding(
        "consistency",
        Verdict.FAIL,
        f"{found} disagreement(s){so_far}: {shown}",
        "This should never happen: keep a dump of the schema and report it. Then run: fairlead doctor --repair",
        found,
    )


Piece = tuple[list[Inconsistency], Walked | None]


async def _piece_of_jobs(tx: Tx, walked: Walked) -> Piece:
    piece = await consistency.jobs(tx, walked.place, look=SAMPLED)
    return piece.faults, Walked("keys") if piece.place is None else Walked("jobs", piece.place)


async def _piece_of_keys(tx: Tx, walked: Walked) -> Piece:
    place = consistency.KeyPlace(walked.place or consistency.BEGINNING, walked.key_hash)
    faults, after = await consistency.keys(tx, place, look=SAMPLED)
    return faults, Walked("runs") if after is None else Walked("keys", after.tenant_id, after.key_hash)


async def _piece_of_runs(tx: Tx, walked: Walked) -> Piece:
    piece = await consistency.runs(tx, walked.place)
    return piece.faults, Walked("levels") if piece.place is None else Walked("runs", piece.place)


async def _levels(tx: Tx, _: Walked) -> Piece:
    return [*await consistency.leases(tx), *await consistency.levels(tx)], None


_PHASES = {"jobs": _piece_of_jobs, "keys": _piece_of_keys, "runs": _piece_of_runs, "levels": _levels}
_walked = msgspec.json.Decoder(Walked)
