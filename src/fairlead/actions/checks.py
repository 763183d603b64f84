"""The health checks that run continuously, over hot tables only: each with its finding and advice."""

from collections.abc import Sequence

from fairlead.actions import server_checks
from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.model.finding import Finding, Verdict, grade_finding
from fairlead.model.inconsistency import InconsistencyKind
from fairlead.store import checks, consistency
from fairlead.store.checks import IdleTransaction, LateDuty, XminHolder

# Findings older than this are a finding themselves.
STALE_SECONDS = 300.0
OVERDUE_SECONDS, OVERDUE_FAIL_SECONDS = 30.0, 300.0
LEFT_SECONDS, LEFT_FAIL_SECONDS = 300.0, 3600.0
SLEEPER_SECONDS = 30.0
XMIN_SECONDS, XMIN_FAIL_SECONDS = 300.0, 3600.0
# For holders without a time: a replication slot whose standby is away.
XMIN_TRANSACTIONS = 5_000_000
DUTY_SECONDS, DUTY_FAIL_SECONDS = 600.0, 3600.0
DUTY_FAILURES = 3
UNFOLDED_ROWS = 1000
NO_MAINTENANCE = (
    "Run a worker, `fairlead serve` or `fairlead scheduler` with maintenance = true, and look for "
    "service_failed and duty_failed in the logs of those that run."
)


async def examine_hot(tx: Tx) -> list[Finding]:
    """Check the hot tables and PostgreSQL's current activity."""
    return [
        judge_idle(await checks.list_idle_transactions(tx)),
        judge_xmin(await checks.find_oldest_xmin(tx)),
        await _check_expired_leases(tx),
        await _check_overdue(tx),
        await _check_left_steps(tx),
        await _check_sleeping_jobs(tx),
        await _check_orphaned_jobs(tx),
        judge_duties(
            await checks.list_late_duties(tx, late_seconds=DUTY_SECONDS, failures=DUTY_FAILURES),
        ),
        await _check_audit_rest(tx),
        await _check_unfolded(tx),
    ]


async def refresh_findings(tx: Tx) -> list[Finding]:
    """Run the checks and store the findings for all processes. The findings whose verdict changed."""
    found = await examine_hot(tx)
    changed = await checks.store_findings(tx, found)
    return [one for one in found if one.check in changed]


async def list_stored(tx: Tx) -> list[Finding]:
    """The last findings of any process, and whether they are recent."""
    return [*await checks.list_findings(tx), judge_age(await checks.findings_age(tx))]


async def list_checks(tx: Tx, principal: Principal) -> list[Finding]:
    """All continuous checks, run now, and the last finding of the walk through the record."""
    principal.require(Permission.MANAGE_SYSTEM)
    now = [
        *await examine_hot(tx),
        *server_checks.judge_server(await checks.read_server_state(tx), tx.settings),
    ]
    names = {one.check for one in now}
    return [*now, *(one for one in await list_stored(tx) if one.check not in names)]


def judge_age(seconds: float | None) -> Finding:
    """Whether the duty `checks` was done recently."""
    if seconds is None:
        return Finding("checks", Verdict.WARN, "no process has run the checks yet", NO_MAINTENANCE)
    return grade_finding(
        "checks",
        seconds,
        warn=STALE_SECONDS,
        fail=None,
        fine="the checks run regularly",
        detail=f"the checks were last run {seconds:.0f} s ago",
        advice=NO_MAINTENANCE,
    )


def judge_idle(idle: Sequence[IdleTransaction]) -> Finding:
    """A failure if one of them is Fairlead's own: it may hold locks on other tenants' jobs."""
    if not idle:
        return Finding(
            "idle_transactions", Verdict.OK, "no transaction is idle for longer than a lease", value=0
        )
    shown = ", ".join(
        f"process {one.pid} ({one.application or 'unnamed'}) for {one.seconds:.0f} s" for one in idle[:5]
    )
    ours = any((one.application or "").startswith("fairlead") for one in idle)
    return Finding(
        "idle_transactions",
        Verdict.FAIL if ours else Verdict.WARN,
        f"{len(idle)} transaction(s) idle for longer than a lease: {shown}",
        "They hold locks, and keep dead rows from being removed. End them with select pg_terminate_backend(PID), and "
        "set idle_in_transaction_session_timeout for the application that left them open.",
        len(idle),
    )


def judge_xmin(holder: XminHolder | None) -> Finding:
    """By age in seconds if known, else by the number of transactions."""
    if holder is None:
        return Finding("oldest_xmin", Verdict.OK, "nothing holds back vacuum", value=0)
    advice = (
        "While it lasts, no dead row can be removed, and claims slow down. End the transaction, or drop the slot of a "
        "standby that is gone."
    )
    if holder.seconds is None:
        transactions = holder.transactions or 0
        return grade_finding(
            "oldest_xmin",
            transactions,
            warn=XMIN_TRANSACTIONS,
            fail=None,
            fine="nothing holds back vacuum for long",
            detail=f"{holder.holder} has held back vacuum for {transactions} transactions",
            advice=advice,
        )
    return grade_finding(
        "oldest_xmin",
        holder.seconds,
        warn=XMIN_SECONDS,
        fail=XMIN_FAIL_SECONDS,
        fine="nothing holds back vacuum for long",
        detail=f"{holder.holder} has held back vacuum for {holder.seconds:.0f} s",
        advice=advice,
    )


async def _check_expired_leases(tx: Tx) -> Finding:
    found = await checks.count_expired_leases(tx)
    return grade_finding(
        "expired_leases",
        found.leases,
        warn=0,
        fail=0,
        fine="every expired lease was rescued in time",
        detail=f"{found.leases} lease(s) expired and were not rescued, the oldest {found.seconds:.0f} s ago",
        advice=NO_MAINTENANCE + " lease_not_rescued names jobs that cannot be rescued.",
    )


async def _check_overdue(tx: Tx) -> Finding:
    seconds = await checks.measure_overdue(tx)
    return grade_finding(
        "overdue_jobs",
        seconds,
        warn=OVERDUE_SECONDS,
        fail=OVERDUE_FAIL_SECONDS,
        fine="jobs that fall due are staged in time",
        detail=f"a job fell due {seconds:.0f} s ago and was not made ready",
        advice=NO_MAINTENANCE,
    )


async def _check_left_steps(tx: Tx) -> Finding:
    seconds = await checks.measure_left_steps(tx)
    return grade_finding(
        "left_steps",
        seconds,
        warn=LEFT_SECONDS,
        fail=LEFT_FAIL_SECONDS,
        fine="jobs of workflow steps are made in time",
        detail=f"a workflow step has waited {seconds:.0f} s for its jobs to be made, which is much work",
        advice=NO_MAINTENANCE + " It needs the encryption key if the step has secrets.",
    )


async def _check_sleeping_jobs(tx: Tx) -> Finding:
    found = await checks.list_sleeping_jobs(tx, seconds=SLEEPER_SECONDS)
    shown = ", ".join(str(one.job_id) for one in found[:5])
    return grade_finding(
        "sleeping_parents",
        len(found),
        warn=0,
        fail=0,
        fine="no job waits for a run that is over",
        detail=f"{len(found)} job(s) wait for a run that is over: {shown}",
        advice="Run: fairlead doctor --repair (it wakes them).",
    )


async def _check_orphaned_jobs(tx: Tx) -> Finding:
    place = await consistency.find_newest_job_place(tx, look=checks.LOOK)
    faults = (await consistency.check_jobs(tx, place, look=checks.LOOK)).faults
    found = [one.id for one in faults if one.kind is InconsistencyKind.QUEUED_WITHOUT_ROW]
    shown = ", ".join(map(str, found[:5]))
    return grade_finding(
        "queued_without_row",
        len(found),
        warn=0,
        fail=0,
        fine="a claim can find each of the newest jobs that wait",
        detail=f"{len(found)} job(s) wait, and no claim can find them: {shown}",
        advice="Run: fairlead doctor --repair (it puts them back into the queue).",
    )


def judge_duties(late: Sequence[LateDuty]) -> Finding:
    """Late duties: no process does them. Failing duties: they were tried, and changed nothing."""
    if not late:
        return Finding("duties", Verdict.OK, "the regular duties are done", value=0)
    shown = "; ".join(_describe_duty(one) for one in late[:5])
    worst = any(one.late_seconds > DUTY_FAIL_SECONDS or one.failures >= DUTY_FAILURES for one in late)
    return Finding(
        "duties",
        Verdict.FAIL if worst else Verdict.WARN,
        f"{len(late)} duty(ies) not done: {shown}",
        NO_MAINTENANCE,
        len(late),
    )


def _describe_duty(one: LateDuty) -> str:
    if one.failures >= DUTY_FAILURES:
        return f"{one.name} failed {one.failures} times: {one.last_error}"
    return f"{one.name} is {one.late_seconds:.0f} s late"


async def _check_audit_rest(tx: Tx) -> Finding:
    rows = await checks.count_audit_rest(tx)
    least = " or more" if rows == checks.LOOK else ""
    return grade_finding(
        "audit_rest",
        rows,
        warn=0,
        fail=None,
        fine="every entry of the audit log is in its day's partition",
        detail=f"audit_log_rest has {rows}{least} entries of days that had no partition",
        advice="Nothing is lost: retention removes them. Run fairlead migrate up, which prepares the coming "
        "week, and look for duty_failed in the logs.",
    )


async def _check_unfolded(tx: Tx) -> Finding:
    rows = await checks.count_unfolded(tx)
    return grade_finding(
        "unfolded_counts",
        rows,
        warn=UNFOLDED_ROWS,
        fail=None,
        fine="counts are folded in time",
        detail=f"{rows} rows of counts should have been folded",
        advice=NO_MAINTENANCE,
    )
