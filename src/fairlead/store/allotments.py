"""Allotments: the parts of a definition's max_running that cells may use, and copies of the home cell's definitions."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx

sql = queries_beside(__file__)

# More waiting jobs than this do not matter.
MOST_COUNTED = 1000


class Demand(NamedTuple):
    """What a cell has of a definition: waiting jobs (counted up to a bound), running ones, and its allotment."""

    waiting: int
    running: int
    number: int


class HomeDefinitions(NamedTuple):
    """The definitions of the home cell and its gate, as JSON."""

    definitions: JsonText
    gate: JsonText


async def take_round(tx: Tx, *, seconds: float) -> int | None:
    """Begin a round and return its number; None if another process began one less than `seconds` ago."""
    [[is_due]] = await tx.values(sql.is_due)
    rows = await tx.values(sql.take_round, {"seconds": seconds}) if is_due else []
    return int(rows[0][0]) if rows else None


async def hold_round(tx: Tx, number: int) -> bool:
    """Whether this is still the latest round; no later one can begin until the transaction ends."""
    return bool(await tx.values(sql.hold_round, {"round": number}))


async def list_limits(tx: Tx) -> dict[UUID, int]:
    """The max_running of the definitions that have one."""
    return {row[0]: row[1] for row in await tx.values(sql.limits)}


async def list_grants(tx: Tx) -> dict[tuple[UUID, UUID], int]:
    """What each cell may use at most, by definition and cell."""
    return {(row[0], row[1]): row[2] for row in await tx.values(sql.grants)}


async def put_grant(tx: Tx, definition_id: UUID, cell_id: UUID, number: int) -> None:
    """Note what a cell may use at most."""
    await tx.run(sql.put_grant, {"definition_id": definition_id, "cell_id": cell_id, "number": number})


async def forget_grants(tx: Tx) -> None:
    """Remove the grants of removed cells, and of definitions without a limit."""
    await tx.run(sql.forget_grants)


async def read_demand(tx: Tx, definitions: Sequence[UUID]) -> dict[UUID, Demand]:
    """What waits and runs in this cell, and its allotments."""
    rows = await tx.values(sql.demand, {"ids": list(definitions), "most": MOST_COUNTED})
    return {row[0]: Demand(*row[1:]) for row in rows}


async def lower(tx: Tx, definition_id: UUID, number: int, round_number: int) -> int | None:
    """Let this cell use no more than `number`; how much it may still use, which is more while more runs.

    None if a later round has been here.
    """
    await tx.run(sql.add_lock, {"id": definition_id})
    await tx.values(sql.lock, {"id": definition_id})
    values = {"id": definition_id, "number": number, "round": round_number}
    await tx.run(sql.lower, values)
    rows = await tx.values(sql.count_running, {"id": definition_id, "round": round_number})
    return int(rows[0][0]) if rows else None


async def set_higher(tx: Tx, definition_id: UUID, number: int, round_number: int) -> None:
    """Let this cell use up to `number`, unless a later round has been here."""
    await tx.run(sql.raise_, {"id": definition_id, "number": number, "round": round_number})


async def begin_in_home(tx: Tx) -> None:
    """The first other cell is added: the home cell has all of every limit."""
    await tx.run(sql.begin_in_home)


async def begin(tx: Tx) -> None:
    """This is one of several cells: it has nothing of any limit until a round."""
    await tx.run(sql.begin)


async def end(tx: Tx) -> None:
    """End allotments if the home cell is the only one again."""
    await tx.run(sql.end)


async def read_fingerprint(tx: Tx) -> str:
    """A text that changes whenever the definitions of all tenants or the gate of the system change."""
    [[found]] = await tx.values(sql.fingerprint)
    return str(found)


async def read_definitions(tx: Tx) -> HomeDefinitions:
    """The definitions of all tenants, and the gate of the system."""
    [[found, gate]] = await tx.values(sql.definitions)
    return HomeDefinitions(JsonText(found.encode()), JsonText(gate.encode()))


async def add_definitions(tx: Tx, home: HomeDefinitions) -> None:
    """Add those definitions of the home cell that this cell does not have."""
    await tx.values(sql.hold_new, {"definitions": home.definitions})
    [[missing]] = await tx.values(sql.missing, {"definitions": home.definitions})
    await tx.run(sql.copy_definitions, {"definitions": JsonText(missing.encode())})


async def copy_definitions(tx: Tx, home: HomeDefinitions) -> bool:
    """Make the definitions and the gate of this cell those of the home cell; whether anything changed."""
    await tx.values(sql.hold_new, {"definitions": home.definitions})
    changed = await tx.run(sql.copy_definitions, {"definitions": home.definitions})
    changed += await tx.run(sql.copy_gate, {"gate": home.gate})
    if changed:
        tx.notify("gate")
    return changed > 0
