"""Is everything fine? From the facts of a moment to problems, the worst first, and one verdict."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.model.error_groups import ErrorGroup
from fairlead.model.finding import Finding, Verdict, merge_findings
from fairlead.model.job import JobStatus
from fairlead.model.summary import JobTimes, Percentiles
from fairlead.model.why import WorkerCounts

# A limit is worth a warning if it has held back a job for this long.
HELD_SECONDS = 60.0
# A tenant uses too much if it has more than this many times its fair share, with at least this many running jobs.
UNFAIR_FACTOR = 2.0
UNFAIR_RUNNING = 5
MOST_OF_A_KIND = 10
# The most tenants, and the most definitions, that an overview names.
MOST_NAMES = 5


class ProblemKind(StrEnum):
    """The kinds of problems, the most urgent first."""

    SYSTEM_PAUSED = "system_paused"
    NO_WORKER = "no_worker"
    NO_AGENT = "no_agent"
    CHECK = "check"
    TRIGGER_FAILING = "trigger_failing"
    TENANT_PAUSED = "tenant_paused"
    DEFINITION_PAUSED = "definition_paused"
    HOST_PAUSED = "host_paused"
    NEW_ERROR = "new_error"
    LIMIT_REACHED = "limit_reached"
    WORKER_SILENT = "worker_silent"
    AGENT_SILENT = "agent_silent"
    UNFAIR_SHARE = "unfair_share"


class OverviewProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something to look at: what it is, since when, a number, and what to do."""

    kind: ProblemKind
    # warn or fail
    severity: Verdict
    title: str
    detail: str = ""
    advice: str = ""
    since: datetime | None = None
    count: int | None = None
    # the noun of the number, such as "queued jobs" or, for 1, "queued job"
    count_of: str = ""
    tenant: str | None = None
    # the key, id or name of what it is about
    subject: str | None = None


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of a tenant and definition that may run now and do not; their limits and what runs under each."""

    tenant_id: UUID
    tenant: str
    definition_id: UUID
    definition: str
    queued: int
    oldest_at: datetime
    tenant_limit: int | None
    definition_limit: int | None
    pair_limit: int | None
    # the engine that delivers the jobs, if one does
    engine: str | None = None


class RunningCount(msgspec.Struct, frozen=True):
    """The number of running jobs of a tenant and definition."""

    tenant_id: UUID
    definition_id: UUID
    running: int


class HostBacklog(msgspec.Struct, frozen=True, kw_only=True):
    """A host whose agent was not seen lately, and the jobs that wait for it, counted up to a bound."""

    host_id: UUID
    name: str
    tenant: str
    last_seen_at: datetime | None
    waiting: int
    oldest_at: datetime | None


class SilentWorker(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    hostname: str
    tenant: str | None
    last_seen_at: datetime
    running_count: int


class FailingTrigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger whose last firings failed; `failures` is counted up to a bound."""

    trigger_id: UUID
    label: str
    tenant: str
    failures: int
    since: datetime
    detail: str | None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A closed gate."""

    scope: str
    name: str
    tenant: str | None
    subject: str
    paused_at: datetime
    paused_by: str | None
    note: str | None


class TenantShare(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's share of the running jobs, and the share that its weight gives it."""

    tenant: str
    running: int
    share: float
    fair_share: float


class FleetSummary(msgspec.Struct, frozen=True):
    """All workers: how many respond, how many do not, what those that respond run, and how much they could run."""

    online: int
    silent: int
    running: int
    capacity: int


class BusyName(msgspec.Struct, frozen=True):
    """A tenant or a definition, and how many of its jobs ended."""

    name: str
    succeeded: int
    failed: int

    @property
    def ended_count(self) -> int:
        return self.succeeded + self.failed


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict and its problems, then what is slow and what is busy."""

    at: datetime
    # None: of all tenants
    tenant: str | None
    verdict: Verdict
    summary: str
    # the worst first; of each kind at most ten
    problems: list[OverviewProblem]
    problems_left_out: int
    counts: dict[JobStatus, int]
    # None for a tenant, to which the system's workers are not shown
    workers: FleetSummary | None
    # of a sample of the attempts that ended in the last hour
    wait_ms: Percentiles | None
    run_ms: Percentiles | None
    # the definitions whose attempts took longest, by the 95th percentile
    slowest: list[JobTimes]
    # by jobs that ended in the last hour: tenants, or definitions of one tenant
    busiest: list[BusyName]
    # the last results of the continuous checks; empty for a tenant
    checks: list[Finding]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that problems are found in, at a moment of the database's clock."""

    at: datetime
    # whether they are those of one tenant
    of_tenant: bool
    backlogs: Sequence[Backlog] = ()
    # for each backlog
    workers: Sequence[WorkerCounts] = ()
    running: Sequence[RunningCount] = ()
    hosts: Sequence[HostBacklog] = ()
    silent_workers: Sequence[SilentWorker] = ()
    triggers: Sequence[FailingTrigger] = ()
    pauses: Sequence[Pause] = ()
    # groups that were first seen lately
    errors: Sequence[ErrorGroup] = ()
    shares: Sequence[TenantShare] = ()
    checks: Sequence[Finding] = ()


def find_problems(facts: Facts) -> list[OverviewProblem]:
    """Every problem, the worst first."""
    order = list(ProblemKind)
    found = [
        *_find_unserved(facts),
        *_find_silent_agents(facts),
        *_find_silent_workers(facts),
        *_find_failing_triggers(facts),
        *_find_pauses(facts),
        *_find_new_errors(facts),
        *_find_full_limits(facts),
        *_find_unfair_shares(facts),
        *_find_failed_checks(facts),
    ]
    return sorted(found, key=lambda one: (-one.severity.level, order.index(one.kind), -(one.count or 0)))


def judge(problems: Iterable[OverviewProblem]) -> Verdict:
    """The worst severity; ok without problems."""
    return max((one.severity for one in problems), key=lambda one: one.level, default=Verdict.OK)


def summarize(problems: Sequence[OverviewProblem]) -> str:
    """The verdict in words: `Everything is fine`, `2 problems, 1 warning`."""
    failures = sum(one.severity is Verdict.FAIL for one in problems)
    warnings = len(problems) - failures
    parts = [_count_of(failures, "problem")] if failures else []
    parts += [_count_of(warnings, "warning")] if warnings else []
    return ", ".join(parts) or "Everything is fine"


def choose_shown(problems: Iterable[OverviewProblem]) -> list[OverviewProblem]:
    """The problems to show: of each kind at most MOST_OF_A_KIND."""
    seen: dict[ProblemKind, int] = defaultdict(int)
    shown = []
    for one in problems:
        seen[one.kind] += 1
        if seen[one.kind] <= MOST_OF_A_KIND:
            shown.append(one)
    return shown


def merge_overviews(cells: Sequence[Overview]) -> Overview:
    """The overview of several cells. Percentiles are those of the slowest cell; workers serve all cells."""
    problems: dict[tuple[object, ...], OverviewProblem] = {}
    for one in (problem for cell in cells for problem in cell.problems):
        problems.setdefault((one.kind, one.title, one.tenant, one.subject), one)
    order = list(ProblemKind)
    found = sorted(
        problems.values(), key=lambda one: (-one.severity.level, order.index(one.kind), -(one.count or 0))
    )
    shown = choose_shown(found)
    return replace(
        cells[0],
        verdict=judge(found),
        summary=summarize(found),
        problems=shown,
        problems_left_out=len(found) - len(shown) + sum(cell.problems_left_out for cell in cells),
        counts={status: sum(cell.counts.get(status, 0) for cell in cells) for status in cells[0].counts},
        workers=_merge_fleets([cell.workers for cell in cells if cell.workers is not None]),
        wait_ms=_find_slowest([cell.wait_ms for cell in cells]),
        run_ms=_find_slowest([cell.run_ms for cell in cells]),
        busiest=_merge_busiest([one for cell in cells for one in cell.busiest]),
        slowest=_merge_times([one for cell in cells for one in cell.slowest]),
        checks=merge_findings([cell.checks for cell in cells]),
    )


def _merge_fleets(fleets: Sequence[FleetSummary]) -> FleetSummary | None:
    if not fleets:
        return None
    return FleetSummary(
        online=max(one.online for one in fleets),
        silent=max(one.silent for one in fleets),
        running=sum(one.running for one in fleets),
        capacity=max(one.capacity for one in fleets),
    )


def _merge_busiest(found: Sequence[BusyName]) -> list[BusyName]:
    """The same name has jobs in several cells: the tenant `global` lives in each of them."""
    merged: dict[str, BusyName] = {}
    for one in found:
        before = merged.get(one.name, BusyName(one.name, 0, 0))
        merged[one.name] = BusyName(one.name, before.succeeded + one.succeeded, before.failed + one.failed)
    return sorted(merged.values(), key=lambda one: -one.ended_count)[:MOST_NAMES]


def _merge_times(found: Sequence[JobTimes]) -> list[JobTimes]:
    """A definition is in every cell."""
    by_key: dict[str | None, list[JobTimes]] = defaultdict(list)
    for one in found:
        by_key[one.definition_key].append(one)
    merged = [
        JobTimes(
            definition_key=key,
            jobs=sum(one.jobs for one in times),
            wait_ms=_find_slowest([one.wait_ms for one in times]),
            run_ms=_find_slowest([one.run_ms for one in times]),
        )
        for key, times in by_key.items()
    ]
    return sorted(merged, key=lambda one: -(one.run_ms.p95 if one.run_ms else 0))[:MOST_NAMES]


def _find_slowest(cells: Sequence[Percentiles | None]) -> Percentiles | None:
    found = [one for one in cells if one is not None]
    if not found:
        return None
    return Percentiles(*(max(getattr(one, name) for one in found) for name in ("p50", "p95", "p99")))


def _count_of(number: int, noun: str) -> str:
    return f"{number:,} {_noun(number, noun)}"


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"


def _find_unserved(facts: Facts) -> Iterator[OverviewProblem]:
    """A problem for each definition that no worker serves; only one if no worker runs at all."""
    unserved = [
        (one, counts) for one, counts in zip(facts.backlogs, facts.workers, strict=True) if not counts.serving
    ]
    by_definition: dict[str, list[Backlog]] = defaultdict(list)
    for one, _ in unserved:
        by_definition[one.definition].append(one)
    alive = max((counts.alive for _, counts in unserved), default=0)
    if unserved and not any(counts.alive for counts in facts.workers):
        yield _describe_unserved(
            "No worker is running", [one for one, _ in unserved], definitions=len(by_definition)
        )
        return
    for definition, backlogs in by_definition.items():
        title = f"No {'bridge' if backlogs[0].engine else 'worker'} serves {definition}"
        detail = f"{_count_of(alive, 'worker')} running, but none takes jobs of this definition."
        yield _describe_unserved(title, backlogs, definition=definition, detail=detail)


def _advise_start(backlogs: Sequence[Backlog], definition: str | None) -> str:
    if definition and backlogs[0].engine:
        return f"Start a bridge that has the engine {backlogs[0].engine}: fairlead bridge"
    if definition:
        return "Start a worker whose code has this definition: fairlead worker your_app:fl"
    return "Start a worker: fairlead worker your_app:fl"


def _describe_unserved(
    title: str,
    backlogs: Sequence[Backlog],
    *,
    definitions: int = 1,
    definition: str | None = None,
    detail: str = "",
) -> OverviewProblem:
    tenants = sorted({one.tenant for one in backlogs})
    parts = [detail] if detail else []
    if definitions > 1:
        parts.append(f"{definitions:,} definitions have jobs that wait.")
    if len(tenants) > 1:
        parts.append(f"{len(tenants):,} tenants wait.")
    queued = sum(one.queued for one in backlogs)
    return OverviewProblem(
        kind=ProblemKind.NO_WORKER,
        severity=Verdict.FAIL,
        title=title,
        detail=" ".join(parts),
        advice=_advise_start(backlogs, definition),
        since=min(one.oldest_at for one in backlogs),
        count=queued,
        count_of=_noun(queued, "queued job"),
        tenant=tenants[0] if len(tenants) == 1 else None,
        subject=definition,
    )


def _find_silent_agents(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.hosts:
        seen = "has never connected" if one.last_seen_at is None else "is not responding"
        if one.waiting:
            yield OverviewProblem(
                kind=ProblemKind.NO_AGENT,
                severity=Verdict.FAIL,
                title=f"The agent of host {one.name} {seen}, and jobs wait for it",
                advice="Start the agent on that machine: fairlead agent",
                since=one.oldest_at,
                count=one.waiting,
                count_of=_noun(one.waiting, "waiting job"),
                tenant=one.tenant,
                subject=str(one.host_id),
            )
        elif one.last_seen_at is not None:
            yield OverviewProblem(
                kind=ProblemKind.AGENT_SILENT,
                severity=Verdict.WARN,
                title=f"The agent of host {one.name} is not responding",
                advice="Start the agent on that machine, or remove the host.",
                since=one.last_seen_at,
                tenant=one.tenant,
                subject=str(one.host_id),
            )


def _find_silent_workers(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.silent_workers:
        yield OverviewProblem(
            kind=ProblemKind.WORKER_SILENT,
            severity=Verdict.WARN,
            title=f"Worker {one.hostname or one.worker_id} is not responding",
            detail="Other workers get its jobs when their leases expire.",
            advice="See whether its process still runs and reaches the database.",
            since=one.last_seen_at,
            count=one.running_count,
            count_of=f"{_noun(one.running_count, 'job')} at its last heartbeat",
            tenant=one.tenant,
            subject=one.worker_id,
        )


def _find_failing_triggers(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.triggers:
        yield OverviewProblem(
            kind=ProblemKind.TRIGGER_FAILING,
            severity=Verdict.FAIL,
            title=f"Trigger {one.label} fails",
            detail=one.detail or "",
            advice="Correct the trigger, then fire it once to see that it works.",
            since=one.since,
            count=one.failures,
            count_of=f"{_noun(one.failures, 'failed firing')} in a row",
            tenant=one.tenant,
            subject=str(one.trigger_id),
        )


def _find_pauses(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.pauses:
        kind = ProblemKind(f"{one.scope}_paused")
        # a pause that stops everything that the reader looks at
        whole = kind is ProblemKind.SYSTEM_PAUSED or (kind is ProblemKind.TENANT_PAUSED and facts.of_tenant)
        name = "The system" if one.scope == "system" else f"{one.scope.capitalize()} {one.name}"
        by = f"By {one.paused_by}." if one.paused_by else ""
        note = f"“{one.note}”" if one.note else ""
        yield OverviewProblem(
            kind=kind,
            severity=Verdict.FAIL if whole else Verdict.WARN,
            title=f"{name} is paused: no new jobs start",
            detail=" ".join(part for part in (note, by) if part),
            advice="Resume it when its jobs may run again.",
            since=one.paused_at,
            tenant=one.tenant,
            subject=one.subject,
        )


def _find_new_errors(facts: Facts) -> Iterator[OverviewProblem]:
    for group in facts.errors:
        yield OverviewProblem(
            kind=ProblemKind.NEW_ERROR,
            severity=Verdict.WARN,
            title=f"New error in {group.definition_key}",
            detail=group.pattern,
            advice="Look at one of the jobs; when the cause is removed, retry all of them.",
            since=group.first_seen,
            count=group.jobs,
            count_of=_noun(group.jobs, _name_failures(group)),
            tenant=group.tenant,
            subject=str(group.id),
        )


def _name_failures(group: ErrorGroup) -> str:
    """The noun for a group's jobs: the same word as their status has everywhere else, if all have one."""
    if not group.failed:
        return "dead letter"
    return "job" if group.dead_letter else "failed job"


def _find_full_limits(facts: Facts) -> Iterator[OverviewProblem]:
    """The limits that are reached and have held back a job for a while, each with all that waits behind it."""
    held: dict[tuple[str, str, str | None], list[tuple[Backlog, int, int]]] = defaultdict(list)
    for one in facts.backlogs:
        if (facts.at - one.oldest_at).total_seconds() < HELD_SECONDS:
            continue
        for scope, name, most, running in _list_limits(one, facts.running):
            if most is not None and running >= most:
                held[scope, name, one.tenant if scope != "definition" else None].append((one, most, running))
    for (scope, name, tenant), found in held.items():
        _, most, running = found[0]
        queued = sum(one.queued for one, _, _ in found)
        whose = {
            "tenant": f"tenant {name}",
            "definition": f"definition {name}",
            "definition_tenant": f"definition {name} for tenant {tenant}",
        }[scope]
        yield OverviewProblem(
            kind=ProblemKind.LIMIT_REACHED,
            severity=Verdict.WARN,
            title=f"The concurrency limit of {whose} is reached",
            detail=f"{running:,} of {most:,} are running.",
            advice="Raise the limit if what the jobs use can bear more, or wait.",
            since=min(one.oldest_at for one, _, _ in found),
            count=queued,
            count_of=_noun(queued, "queued job"),
            tenant=tenant,
            subject=name if scope != "tenant" else None,
        )


def _list_limits(one: Backlog, running: Sequence[RunningCount]) -> Iterator[tuple[str, str, int | None, int]]:
    """The limits of a pair: scope, name, limit, and the number that runs."""
    if one.tenant_limit is None and one.definition_limit is None and one.pair_limit is None:
        return
    of_tenant = sum(n.running for n in running if n.tenant_id == one.tenant_id)
    of_definition = sum(n.running for n in running if n.definition_id == one.definition_id)
    of_both = sum(
        n.running for n in running if n.tenant_id == one.tenant_id and n.definition_id == one.definition_id
    )
    yield "tenant", one.tenant, one.tenant_limit, of_tenant
    yield "definition", one.definition, one.definition_limit, of_definition
    yield "definition_tenant", one.definition, one.pair_limit, of_both


def _find_unfair_shares(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.shares:
        if one.running < UNFAIR_RUNNING or one.share <= UNFAIR_FACTOR * one.fair_share:
            continue
        yield OverviewProblem(
            kind=ProblemKind.UNFAIR_SHARE,
            severity=Verdict.WARN,
            title=f"Tenant {one.tenant} has more than twice its fair share",
            detail=f"{one.share:.0%} of the running jobs; fair would be {one.fair_share:.0%}.",
            advice="Long jobs keep their slots until they end. If it lasts, give the tenant a concurrency limit.",
            count=one.running,
            count_of=_noun(one.running, "running job"),
            tenant=one.tenant,
        )


def _find_failed_checks(facts: Facts) -> Iterator[OverviewProblem]:
    for one in facts.checks:
        if one.verdict is Verdict.OK:
            continue
        yield OverviewProblem(
            kind=ProblemKind.CHECK,
            severity=one.verdict,
            title=f"Check {one.check.replace('_', ' ')}: {one.detail}",
            advice=one.advice,
            subject=one.check,
        )
