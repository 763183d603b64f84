"""Compare the history of a run with the tables, after the faults have stopped and the queue has drained."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairlead.chaos.checks import FAMILIES
from fairlead.chaos.checks.family import Violation, list_violations, run_family
from fairlead.chaos.checks.history_tables import load_history
from fairlead.chaos.checks.recovery import RecoveryTime, measure_recoveries
from fairlead.chaos.run_plan import SCENARIO, RunPlan
from fairlead.chaos.scenario import JOIN
from fairlead.db.database import Database
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.store import jobs, workflows
from fairlead.version import __version__

sql = queries_beside(__file__)

# Times of clients and of the database are compared give or take this: the clocks run apart a little.
TOLERANCE_SECONDS = 0.5
INCONSISTENT = "inconsistent"
ORPHANED = "process_orphaned"
NOT_DRAINED = "not_drained"
SLOW = "recovery_slow"
MEANINGS = {
    INCONSISTENT: "Queue, record, counts and runs contradict each other",
    ORPHANED: "A process of the run was left behind",
    NOT_DRAINED: "The queue did not empty after the faults",
    SLOW: "Recovery took longer than promised (a finding only with --strict-times)",
    **{name: text for family in FAMILIES for name, text in family.meanings.items()},
}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. `finding_counts` has every rule that was checked, most with 0."""

    seed: int
    duration_seconds: float
    findings: list[Violation]
    finding_counts: dict[str, int]
    counts: dict[str, int]
    faults: dict[str, int]
    recoveries: list[RecoveryTime]
    versions: dict[str, str]
    left_out: dict[str, str]

    @property
    def is_clean(self) -> bool:
        return not any(self.finding_counts.values())


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the run knows and neither its history nor the database says."""

    seed: int = 0
    # a sentence for each process that was left behind
    orphans: Sequence[str] = ()
    # what did not drain, by kind
    left: Mapping[str, int] = {}
    # kinds of faults and processes that could not be had, and why
    left_out: Mapping[str, str] = {}
    # whether a recovery that takes longer than promised is a finding
    strict_times: bool = False
    plan: RunPlan = SCENARIO


async def check_run(folder: Path, database: Database, facts: RunFacts) -> RunResult:
    """Check everything that a run must have kept, in one snapshot of the database.

    The database must be opened past any proxy, as the owner of the schema.
    """
    async with database.transaction(snapshot=True, unhurried=True) as tx:
        return await check_in_transaction(tx, folder, facts)


async def check_in_transaction(tx: Tx, folder: Path, facts: RunFacts) -> RunResult:
    """`check_run` in a transaction of the caller's, which must see one snapshot."""
    values = await load_run(tx, folder, facts.plan)
    counts: dict[str, int] = {}
    findings: list[Violation] = []
    for family in FAMILIES:
        found = await run_family(tx, family, values)
        counts |= found.counts
        findings += found.violations
    recoveries = await measure_recoveries(tx, facts.plan, values["offset"])
    others = {
        INCONSISTENT: await _list_inconsistencies(tx),
        ORPHANED: [(text, "was still there after the run had ended") for text in facts.orphans],
        NOT_DRAINED: [(what, f"{number} were left") for what, number in facts.left.items()],
        SLOW: [_describe_slow(one) for one in recoveries if facts.strict_times and not one.is_met],
    }
    for name, rows in others.items():
        counts[name] = len(rows)
        findings += list_violations(name, rows)
    [(duration,)] = await tx.values(sql.duration)
    return RunResult(
        seed=facts.seed,
        duration_seconds=duration,
        findings=findings,
        finding_counts=counts,
        counts=await _count(tx, values),
        faults=dict(await tx.values(sql.faults)),
        recoveries=recoveries,
        versions=await _list_versions(tx),
        left_out=dict(facts.left_out),
    )


async def _list_inconsistencies(tx: Tx) -> list[tuple[str, str]]:
    of_jobs = await jobs.list_inconsistencies(tx)
    of_runs = await workflows.list_inconsistencies(tx)
    return [(str(subject or "counts"), problem) for subject, problem in [*of_jobs, *of_runs]]


async def load_run(tx: Tx, folder: Path, plan: RunPlan) -> dict[str, Any]:
    """Load the history for the checks. The values that their queries take."""
    offset = await load_history(tx, folder, plan)
    [(drained,)] = await tx.values(sql.drained, {"offset": offset})
    return {
        "offset": offset,
        "drained": drained,
        "tolerance": TOLERANCE_SECONDS,
        "lease_seconds": plan.lease_seconds,
        "host": plan.host,
        "host_limit": plan.host_limit,
        "poison": plan.poison,
        "fatal": plan.fatal,
        "durable": plan.durable,
        "join": JOIN,
        "clock": plan.clock,
        "event_type": plan.event_type,
        "event_trigger": plan.event_trigger,
    }


def _describe_slow(one: RecoveryTime) -> tuple[str, str]:
    return (
        one.kind,
        f"expected {one.until} within {one.bar:.1f} s, found {one.longest:.1f} s at most ({one.count} times)",
    )


async def _count(tx: Tx, values: Mapping[str, Any]) -> dict[str, int]:
    [(condemned,)] = await tx.values(sql.condemned, values)
    return {**dict(await tx.values(sql.counts)), "condemned by kills while it ran alone": condemned}


async def _list_versions(tx: Tx) -> dict[str, str]:
    [(postgres,)] = await tx.values("select current_setting('server_version')")
    return {
        "Fairlead": __version__,
        "PostgreSQL": postgres,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores",
    }
