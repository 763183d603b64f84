"""After the faults: wait until the queue is empty."""

import asyncio
from collections.abc import Callable

from fairlead.actions import triggers
from fairlead.chaos import scenario
from fairlead.chaos.history import now
from fairlead.chaos.sampler import TELL_SECONDS
from fairlead.chaos.site.open_site import Site
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, DatabaseUnreachable
from fairlead.model.access import Principal, Role

LOOK_SECONDS = 0.5
# A server may still be enqueueing for a client that has given up: the queue must stay empty for so long.
EMPTY_SECONDS = 5.0

sql = queries_beside(__file__)


async def drain_queue(site: Site, *, seconds: float, tell: Callable[[str], object]) -> dict[str, int]:
    """Let the schedules catch up and stop them, then wait until nothing is left.

    Returns the rest, by kind, if no job ends for `seconds`: a slow machine may take its time, a stuck queue may not.
    """
    began = (await site.rows("select clock_timestamp()"))[0][0]
    told_at, changed_at, ended = 0.0, now(), -1
    filled_at = now()
    while now() < filled_at + EMPTY_SECONDS:
        if left := await _count_left(site, began):
            filled_at = now()
        number = await _count_ended(site)
        if number != ended:
            changed_at, ended = now(), number
        if left and now() > changed_at + seconds:
            return left
        if left and now() > told_at + TELL_SECONDS:
            told_at = now()
            tell("draining: " + ", ".join(f"{number} {what}" for what, number in left.items()))
        await asyncio.sleep(LOOK_SECONDS)
    return {}


async def _count_ended(site: Site) -> int:
    """How many jobs, runs and events are done with; -1 if the database does not answer."""
    try:
        return int((await site.rows(sql.ended))[0][0])
    except (DatabaseBusy, DatabaseUnreachable):
        return -1


async def _count_left(site: Site, began: object) -> dict[str, int]:
    """What is not done yet, by kind. Schedules whose instants up to the beginning have fired are stopped first."""
    try:
        await site.database.transact(lambda tx: _stop_schedules(tx, began))
        [row] = await site.database.transact(lambda tx: tx.dicts(sql.left))
    except (DatabaseBusy, DatabaseUnreachable):
        return {"unknown: the database does not answer": 1}
    return {what.replace("_", " "): number for what, number in row.items() if number}


async def _stop_schedules(tx: Tx, began: object) -> None:
    principal = Principal("chaos", Role.SUPER_ADMIN)
    values = {"labels": list(scenario.SCHEDULES), "began": began}
    for (trigger_id,) in await tx.values(sql.find_done_schedules, values):
        await triggers.change(tx, principal, trigger_id, {"is_enabled": False})
