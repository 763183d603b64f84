"""Compare the history of a run with the tables, after the faults have stopped and the queue has drained."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fairlead.chaos.checks import FAMILIES
from fairlead.chaos.checks.family import Violation, count_work, list_violations, run_family
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
IDLE = "rule_without_work"
MEANINGS = {
    INCONSISTENT: "Queue, record, counts and runs contradict each other",
    ORPHANED: "A process of the run was left behind",
    NOT_DRAINED: "The queue did not empty after the faults",
    SLOW: "Recovery took longer than promised (a finding only with --strict-times)",
    IDLE: "A rule had nothing to check, although the run was long and had all kinds of faults",
    **{name: text for family in FAMILIES for name, text in family.meanings.items()},
}


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. `finding_counts` has every rule, most with 0; `work` is how much each of them had to check."""

    seed: int
    duration_seconds: float
    findings: list[Violation]
    finding_counts: dict[str, int]
    work: dict[str, int]
    counts: dict[str, int]
    faults: dict[str, int]
    recoveries: list[RecoveryTime]
    versions: dict[str, str]
    left_out: dict[str, str]

    @property
    def is_clean(self) -> bool:
        return not any(self.finding_counts.values())

    @property
    def not_checked(self) -> list[str]:
        """The rules that had nothing to check."""
        return [name for name, number in self.work.items() if not number]


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
    # the number of jobs from which on a rule that had nothing to check is a finding; None: never
    full_jobs: int | None = None
    # the folder with the output of the processes
    logs: Path | None = None
    plan: RunPlan = SCENARIO


async def check_run(folder: Path, database: Database, facts: RunFacts) -> RunResult:
    """Check everything that a run must have kept, in one snapshot of the database.

    The database must be opened past any proxy, as the owner of the schema.
    """
    async with database.transaction(snapshot=True, unhurried=True) as tx:
        return await check_in_transaction(tx, folder, facts)


async def check_in_transaction(tx: Tx, folder: Path, facts: RunFacts) -> RunResult:
    """`check_run` in a transaction of the caller's, which must see one snapshot."""
    values = await load_run(tx, folder, facts.plan, logs=facts.logs)
    finding_counts: dict[str, int] = {}
    findings: list[Violation] = []
    work: dict[str, int] = {}
    for family in FAMILIES:
        found = await run_family(tx, family, values)
        finding_counts |= found.counts
        findings += found.violations
        work |= await count_work(tx, family, values)
    recoveries = await measure_recoveries(tx, facts.plan, values["offset"])
    counts = await _count(tx, values)
    work |= _count_other_work(counts, recoveries, len(work))
    others = {
        INCONSISTENT: await _list_inconsistencies(tx),
        ORPHANED: [(text, "was still there after the run had ended") for text in facts.orphans],
        NOT_DRAINED: [(what, f"{number} were left") for what, number in facts.left.items()],
        SLOW: [_describe_slow(one) for one in recoveries if facts.strict_times and not one.is_met],
        IDLE: _list_idle(work, facts) if facts.full_jobs and counts["jobs"] >= facts.full_jobs else [],
    }
    for name, rows in others.items():
        finding_counts[name] = len(rows)
        findings += list_violations(name, rows)
    [(duration,)] = await tx.values(sql.duration)
    return RunResult(
        seed=facts.seed,
        duration_seconds=duration,
        findings=findings,
        finding_counts=finding_counts,
        work=work,
        counts=counts,
        faults=dict(await tx.values(sql.faults)),
        recoveries=recoveries,
        versions=await _list_versions(tx),
        left_out=dict(facts.left_out),
    )


def _count_other_work(
    counts: Mapping[str, int], recoveries: Sequence[RecoveryTime], rules: int
) -> dict[str, int]:
    """How much the rules had to check that belong to no family."""
    return {
        INCONSISTENT: counts["jobs"],
        ORPHANED: counts["processes started"],
        NOT_DRAINED: counts["jobs"],
        SLOW: sum(one.times.number for one in recoveries if one.bar is not None),
        IDLE: rules,
    }


def _list_idle(work: Mapping[str, int], facts: RunFacts) -> list[tuple[str, str]]:
    """The rules that had nothing to check, and whose part of the load was in the run."""
    parts = {None, facts.plan.hostile, *(one.key for one in facts.plan.definitions)}
    of = {name: one.of for family in FAMILIES for name, one in family.works.items()}
    return [
        (name, "expected that the run has something for this rule to check, found nothing")
        for name, number in work.items()
        if not number and of.get(name) in parts
    ]


async def _list_inconsistencies(tx: Tx) -> list[tuple[str, str]]:
    of_jobs = await jobs.list_inconsistencies(tx)
    of_runs = await workflows.list_inconsistencies(tx)
    return [(str(subject or "counts"), problem) for subject, problem in [*of_jobs, *of_runs]]


async def load_run(tx: Tx, folder: Path, plan: RunPlan, *, logs: Path | None = None) -> dict[str, Any]:
    """Load the history for the checks. The values that their queries take."""
    offset = await load_history(tx, folder, plan, logs=logs)
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
        "batch_size": plan.batch_size,
        "worker_slots": plan.worker_slots,
        "labeled_worker": plan.labeled_worker,
        "join": JOIN,
        "schedules": list(plan.schedules),
        "event_type": plan.event_type,
        "event_trigger": plan.event_trigger,
    }


def _describe_slow(one: RecoveryTime) -> tuple[str, str]:
    return (
        one.kind,
        f"expected {one.until} within {one.bar:.1f} s, found {one.times.longest:.1f} s at most ({one.times.number} times)",
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
