"""Walk through queue and record in short transactions, so that no migration and no vacuum waits for it."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

import msgspec

from fairlead.actions.checks import SLEEPER_SECONDS
from fairlead.db.database import Database
from fairlead.db.tx import Tx
from fairlead.model.finding import Finding, Verdict
from fairlead.model.inconsistency import Inconsistency, InconsistencyKind
from fairlead.store import checks, consistency

# The number of newest jobs and runs that a walk checks if it is not full.
NEWEST = 20_000
NEWEST_RUNS = 1000
# Rows in one piece of the continuous walk: about 20 ms on a busy server.
SAMPLED = 1000


async def find_faults(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    """Every fault, once: of all jobs, or of the newest and the unfinished ones."""
    seen: set[Inconsistency] = set()
    async for fault in _find_all_faults(database, full=full):
        if fault not in seen:
            seen.add(fault)
            yield fault


async def _find_all_faults(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    for look in (_find_sleeping_jobs, consistency.check_leases, consistency.check_levels):
        for fault in await database.transact(look):
            yield fault
    for walked in (
        _walk_jobs(database, full=full),
        _walk_keys(database, full=full),
        _walk_runs(database, full=full),
    ):
        async for fault in walked:
            yield fault
    if full:
        for tenant_id in await database.transact(consistency.list_tenant_ids):
            for fault in await database.transact(
                partial(consistency.check_counts, tenant_id=tenant_id), unhurried=True
            ):
                yield fault


async def _find_sleeping_jobs(tx: Tx) -> list[Inconsistency]:
    return [
        Inconsistency(
            InconsistencyKind.SLEEPING_PARENT, one.job_id, f"waits for run {one.run_id}, which is over"
        )
        for one in await checks.list_sleeping_jobs(tx, seconds=SLEEPER_SECONDS)
    ]


async def _walk_jobs(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = None if full else await database.transact(partial(consistency.find_newest_job_place, look=NEWEST))
    while True:
        piece = await database.transact(partial(consistency.check_jobs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return


async def _walk_keys(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = consistency.KeyPlace()
    while True:
        faults, after = await database.transact(partial(consistency.check_keys, place=place))
        for fault in faults:
            yield fault
        if after is None or not full:
            return
        place = after


async def _walk_runs(database: Database, *, full: bool) -> AsyncIterator[Inconsistency]:
    place = (
        None
        if full
        else await database.transact(partial(consistency.find_newest_run_place, look=NEWEST_RUNS))
    )
    while True:
        piece = await database.transact(partial(consistency.check_runs, place=place))
        for fault in piece.faults:
            yield fault
        if (place := piece.place) is None:
            return


# A piece at a time, as a duty


class WalkPlace(msgspec.Struct, omit_defaults=True):
    """The progress of a lap: its phase, its place, and the number of faults so far."""

    phase: str = "jobs"
    place: UUID | None = None
    key_hash: bytes = b""
    faults: int = 0


class SampledPiece(NamedTuple):
    """The faults of a piece of the walk, and the place of the next piece; None: the lap is over."""

    faults: list[Inconsistency]
    place: str | None


async def check_next_piece(tx: Tx, place: str | None) -> SampledPiece:
    """Check the next piece of the record, and store the finding as the check `consistency`."""
    walked = _walked.decode(place) if place else WalkPlace()
    faults, after = await _PHASES[walked.phase](tx, walked)
    found = walked.faults + len(faults)
    if after is None or faults:
        await checks.store_findings(tx, [judge_lap(found, faults, is_over=after is None)])
    if after is None:
        return SampledPiece(faults, None)
    after.faults = found
    return SampledPiece(faults, msgspec.json.encode(after).decode())


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


Piece = tuple[list[Inconsistency], WalkPlace | None]


async def _check_jobs(tx: Tx, walked: WalkPlace) -> Piece:
    piece = await consistency.check_jobs(tx, walked.place, look=SAMPLED)
    return piece.faults, WalkPlace("keys") if piece.place is None else WalkPlace("jobs", piece.place)


async def _check_keys(tx: Tx, walked: WalkPlace) -> Piece:
    place = consistency.KeyPlace(walked.place or consistency.BEGINNING, walked.key_hash)
    faults, after = await consistency.check_keys(tx, place, look=SAMPLED)
    return faults, WalkPlace("runs") if after is None else WalkPlace("keys", after.tenant_id, after.key_hash)


async def _check_runs(tx: Tx, walked: WalkPlace) -> Piece:
    piece = await consistency.check_runs(tx, walked.place)
    return piece.faults, WalkPlace("levels") if piece.place is None else WalkPlace("runs", piece.place)


async def _check_levels(tx: Tx, _: WalkPlace) -> Piece:
    return [*await consistency.check_leases(tx), *await consistency.check_levels(tx)], None


_PHASES = {"jobs": _check_jobs, "keys": _check_keys, "runs": _check_runs, "levels": _check_levels}
_walked = msgspec.json.Decoder(WalkPlace)
