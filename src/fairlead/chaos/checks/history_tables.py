"""Load a run's history into temporary tables, beside which the checks read the tables of Fairlead."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from fairlead.chaos.checks.traces import find_traces
from fairlead.chaos.history import (
    AnswerRecord,
    BatchRecord,
    CallRecord,
    EndRecord,
    FaultRecord,
    HistoryRecord,
    PhaseRecord,
    ProcessRecord,
    SampleRecord,
    SecretRecord,
    StartRecord,
    StepRunRecord,
    now,
    stream_history,
)
from fairlead.chaos.run_plan import RunPlan
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

BATCH = 50_000
# How often the clocks are compared; the quickest answer says most.
LOOKS = 5
_DERIVED = (
    "analyze_tables",
    "complete",
    "join_calls",
    "effects",
    "asked",
    "tries",
    "entries",
    "index_derived",
    "retries",
    "planned",
    "lives",
    "by_key",
    "explained_losses",
    "index_planned",
)
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


async def load_history(tx: Tx, folder: Path, plan: RunPlan, *, logs: Path | None = None) -> float:
    """Fill the temporary tables. How many seconds the database's clock is ahead of the history's."""
    offset = await measure_offset(tx)
    await tx.run(sql.create)
    await _copy_plan(tx, plan)
    records = stream_history(folder)
    places = iter(range(1 << 40))
    while batch := list(islice(records, BATCH)):
        await _copy_batch(tx, batch, places)
    await _copy(tx, "traces", await find_traces(tx, [folder, *([logs] if logs else [])]))
    for table in await tx.values(sql.own_tables):
        await tx.run(getattr(sql, f"copy_{table[0]}"))
    for name in _DERIVED:
        query = getattr(sql, name)
        await tx.run(query, {"offset": offset} if "%(offset)s" in query else None)
    return offset


async def measure_offset(tx: Tx) -> float:
    """The difference between the database's clock and the clock of the records."""
    best: tuple[float, float] | None = None
    for _ in range(LOOKS):
        before = now()
        [(clock,)] = await tx.values(sql.clock)
        after = now()
        look = after - before, clock - (before + after) / 2
        best = look if best is None else min(best, look)
    return best[1] if best else 0.0


async def _copy_plan(tx: Tx, plan: RunPlan) -> None:
    limits = [
        (
            one.key,
            one.runner,
            one.max_running,
            one.max_running_per_tenant,
            one.max_attempts,
            one.by_key,
            one.rate,
            one.rate_per_tenant,
            one.slots or 1,
            one.requires,
        )
        for one in plan.definitions
    ]
    await _copy(tx, "definition_plans", limits)
    await _copy(tx, "tenant_plans", [(slug, plan.tenant_limits.get(slug)) for slug in plan.tenants])


async def _copy_batch(tx: Tx, batch: Sequence[HistoryRecord], places: Iterator[int]) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for record in batch:
        for table, row in _rows_of(record, places):
            rows.setdefault(table, []).append(row)
    for table, of_table in rows.items():
        await _copy(tx, table, of_table)


def _rows_of(record: HistoryRecord, places: Iterator[int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    match record:
        case StartRecord(at, job_id, attempt_no, definition, pid):
            yield "starts", (at, job_id, attempt_no, definition, pid)
        case EndRecord(at, job_id, attempt_no, outcome):
            yield "ends", (at, job_id, attempt_no, outcome)
        case StepRunRecord(at, job_id, attempt_no, name, place, value):
            yield "step_runs", (at, job_id, attempt_no, name, place, value)
        case BatchRecord(at, jobs):
            yield "batches", (at, jobs)
        case SecretRecord(at, job_id, attempt_no, owner, number):
            yield "secrets", (at, job_id, attempt_no, owner, number)
        case CallRecord(at, id, kind, tenant, what):
            yield "call_records", (id, at, kind, tenant, what)
        case AnswerRecord(at, id, outcome, ids, code, what):
            yield "answer_records", (id, at, outcome, ids, code, what)
        case _:
            yield from _rows_of_rare(record, places)


def _rows_of_rare(
    record: FaultRecord | SampleRecord | PhaseRecord | ProcessRecord, places: Iterator[int]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    match record:
        case FaultRecord(hit=False):
            return
        case FaultRecord(at, over_at, kind, target, pids, note):
            place = next(places)
            processes: list[int] | list[None] = pids or [None]
            yield from (("faults", (place, at, over_at, kind, target, pid, note)) for pid in processes)
        case SampleRecord(at, counts):
            yield "samples", (at, "", 0)  # it counted, whatever it found
            yield from (("samples", (at, name, number)) for name, number in counts.items())
        case PhaseRecord(at, name):
            yield "phases", (at, name)
        case ProcessRecord(at, name, role, pid, former_was_ready, once):
            yield "process_starts", (at, name, role, pid, former_was_ready, once)


async def _copy(tx: Tx, table: str, rows: Iterable[Sequence[Any]]) -> None:
    text = "".join("\t".join(map(_encode, row)) + "\n" for row in rows)
    async with tx.copy(f"copy pg_temp.{table} from stdin") as copy:
        await copy.write(text.encode())


def _encode(value: Any) -> str:
    """A value in the text format of COPY."""
    match value:
        case None:
            return r"\N"
        case UUID() | int() | float():
            return str(value)
        case str():
            return value.translate(_ESCAPES)
        case list():
            return "{" + ",".join(map(str, value)) + "}"
    return msgspec.json.encode(value).decode().translate(_ESCAPES)
