"""The watchdog's periodic duties: retention, the audit log's partitions, folding of counts, usage, expired records.

One process at a time runs a duty, in short rounds. The interval of a duty is for all processes together.
"""

import math
from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

import msgspec
import structlog

from fairlead.actions import approvals, checks, consistency, durable, usage_events, workflow_progress
from fairlead.actions import error_groups as error_folding
from fairlead.db.database import Database
from fairlead.db.migrate import AUDIT_DAYS_AHEAD
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.model.finding import Verdict
from fairlead.model.hooks.hook import REMEMBERED_DAYS
from fairlead.store import (
    access,
    account_links,
    allowances,
    bulk,
    counts,
    duties,
    error_groups,
    events,
    firings,
    hooks,
    hosts,
    idempotency,
    identities,
    kept_keys,
    limit_upkeep,
    open_connections,
    pending_sign_ins,
    quotas,
    retention,
    second_factors,
    sources,
    worker_claims,
    workflows,
)

log = structlog.get_logger(__name__)

MINUTE = 60.0
CHECK_SECONDS = 60.0
SAMPLE_SECONDS = 4.0
HOUR = 3600.0
DAY = 86_400.0
AT_ONCE = 0.0
# Between two rounds that removed nothing: there may be millions of jobs to keep.
LOOKING_SECONDS = 1.0
# How long after a removal the rows that it added to the counts are folded: each round adds one for each tenant and definition.
FOLDING_SECONDS = 2.0
# How long after an hour's end its usage is reported: attempts that ended in that hour may still be committing.
SETTLING_SECONDS = 10.0
AFTER_FAILURE_SECONDS = 300.0
# Records removed in one transaction.
FORGET = 5000
# Workflow runs, with their steps, removed in one transaction.
FORGET_RUNS = 100
# Error groups, with their hours, removed in one transaction.
FORGET_GROUPS = 500
# How long the number of a group's failures is kept by hour.
TREND_DAYS = 30
# How often new failures are added to their error groups. An idle worker pays for each round.
FAILURES_SECONDS = 10.0
# Jobs that wait although their workflow run is over: searched often, since they block other jobs; rarely found.
SLEEPERS_SECONDS = 60.0
SLEEPERS = 100
# How often approvals that wait too long are searched, and how many are escalated in one transaction.
ESCALATION_SECONDS = 15.0
ESCALATIONS = 100
# Tenants whose stored bytes are estimated in one transaction; the pause before the next ones, and before the first again.
MEASURED = 20
MEASURING_SECONDS = 0.2
MEASURE_SECONDS = 300.0
# Keys that hold jobs back: how many one round looks at, the pause before the next ones, and before the first again. The end
# of a job lets the next ones of its key go; this finds those that a change of a limit has set free.
HELD_KEYS = 500
HELD_KEYS_SECONDS = 5.0
HELD_JOBS_SECONDS = 60.0
# Buckets of rates and locks of keys that one round looks at, and for how long a bucket must have been full to be deleted.
LIMIT_ROWS = 500
FULL_SECONDS = 600.0


class DutyResult(msgspec.Struct, frozen=True):
    """The result of one round: seconds until the next, where it continues, and how many jobs or audit days it removed."""

    seconds: float
    place: str | None = None
    removed: int = 0


Work = Callable[[Tx, str | None], Awaitable[DutyResult]]


class Duties:
    """Runs one round of each duty that is due."""

    def __init__(self, database: Database, *, retention_days: int, audit_retention_days: int) -> None:
        self._database = database
        self._retention_days = retention_days
        self._audit_retention_days = audit_retention_days
        self._work: dict[str, Work] = {
            "retention": self._remove_jobs,
            "audit_prepare": _prepare_audit_days,
            "audit_drop": self._drop_audit_days,
            "count_minutes": _fold_minutes,
            "count_history": _fold_history,
            "usage": _report_usage,
            "expired": _forget_expired,
            "account_mails": _clear_account_mails,
            "firings": self._forget_firings,
            "events": self._forget_events,
            "runs": self._forget_runs,
            "sleepers": _wake_sleepers,
            "checks": _run_checks,
            "sample": _sample_consistency,
            "stored_bytes": _measure_stored_bytes,
            "failures": _fold_failures,
            "error_groups": self._forget_error_groups,
            "held_jobs": _release_held_jobs,
            "limit_rows": _remove_limit_rows,
            "approvals": _escalate_approvals,
        }
        self._removed = dict.fromkeys(self._work, 0)

    async def __call__(self) -> float:
        """Run the due duties; seconds until the next round, infinite if unknown."""
        names = [name for name in await self._database.transact(duties.list_due) if name in self._work]
        return min([await self._run_duty(name) for name in names], default=math.inf)

    async def _run_duty(self, name: str) -> float:
        try:
            done = await self._database.transact(lambda tx: self._run_round(tx, name))
        except Exception as error:
            # postponed, so that it does not block the other duties
            why = error.message if isinstance(error, FairleadError) else repr(error)
            await self._database.transact(
                lambda tx: duties.postpone_duty(tx, name, seconds=AFTER_FAILURE_SECONDS, why=why)
            )
            raise
        self._log_removed(name, done)
        return done.seconds

    async def _run_round(self, tx: Tx, name: str) -> DutyResult:
        duty = await duties.take_duty(tx, name)
        if duty is None:
            return DutyResult(math.inf)  # another process has done this duty, or is running it
        done = await self._work[name](tx, duty.place)
        await duties.complete_duty(tx, name, place=done.place, seconds=done.seconds)
        return done

    def _log_removed(self, name: str, done: DutyResult) -> None:
        """Log one line for a series of rounds that followed each other without a pause."""
        self._removed[name] += done.removed
        if done.seconds > AT_ONCE and self._removed[name]:
            log.info(
                "retention_removed", **{"audit_days" if name == "audit_drop" else "jobs": self._removed[name]}
            )
            self._removed[name] = 0

    async def _remove_jobs(self, tx: Tx, place: str | None) -> DutyResult:
        done = await retention.remove(
            tx, days=self._retention_days, place=UUID(place) if place is not None else None
        )
        if done.removed:
            await duties.hurry_duty(tx, "count_history", seconds=FOLDING_SECONDS)
        if done.place is None:
            return DutyResult(HOUR, removed=done.removed)
        return DutyResult(AT_ONCE if done.removed else LOOKING_SECONDS, str(done.place), done.removed)

    async def _forget_firings(self, tx: Tx, place: str | None) -> DutyResult:
        days = self._retention_days
        gone = await firings.remove_old(tx, days=days, limit=FORGET) if days else 0
        gone = max(gone, await firings.remove_ended_windows(tx, limit=FORGET))
        return DutyResult(AT_ONCE if gone == FORGET else HOUR, place)

    async def _forget_events(self, tx: Tx, place: str | None) -> DutyResult:
        days = self._retention_days
        gone = await events.remove_old(tx, days=days, limit=FORGET) if days else 0
        return DutyResult(AT_ONCE if gone == FORGET else HOUR, place)

    async def _forget_runs(self, tx: Tx, place: str | None) -> DutyResult:
        days = self._retention_days
        gone = await workflows.remove_old(tx, days=days, limit=FORGET_RUNS) if days else 0
        return DutyResult(AT_ONCE if gone == FORGET_RUNS else HOUR, place)

    async def _forget_error_groups(self, tx: Tx, place: str | None) -> DutyResult:
        days = self._retention_days
        gone = await error_groups.remove_old(tx, days=days, limit=FORGET_GROUPS) if days else 0
        gone = max(gone, await error_groups.remove_hours(tx, days=TREND_DAYS, limit=FORGET_GROUPS))
        return DutyResult(AT_ONCE if gone == FORGET_GROUPS else HOUR, place)

    async def _drop_audit_days(self, tx: Tx, place: str | None) -> DutyResult:
        keep_days = self._audit_retention_days
        if not keep_days:
            return DutyResult(DAY, place)
        if await retention.drop_audit_day(tx, keep_days=keep_days):
            return DutyResult(AT_ONCE, place, removed=1)
        gone = await retention.drop_audit_rest(tx, keep_days=keep_days, most=FORGET)
        return DutyResult(AT_ONCE if gone == FORGET else DAY, place)


async def _prepare_audit_days(tx: Tx, place: str | None) -> DutyResult:
    await retention.prepare_audit_days(tx, days=AUDIT_DAYS_AHEAD)
    return DutyResult(DAY, place)


async def _fold_minutes(tx: Tx, place: str | None) -> DutyResult:
    fold = await counts.fold_minutes(tx, place=datetime.fromisoformat(place) if place is not None else None)
    return DutyResult(
        AT_ONCE if fold.more else MINUTE, fold.place.isoformat() if fold.place is not None else None
    )


async def _fold_failures(tx: Tx, place: str | None) -> DutyResult:
    """Adds new failures to their error groups, within seconds."""
    more = await error_folding.fold_failures(tx)
    return DutyResult(AT_ONCE if more else FAILURES_SECONDS, place)


async def _fold_history(tx: Tx, place: str | None) -> DutyResult:
    fold = await counts.fold_history(tx)
    return DutyResult(AT_ONCE if fold.more else HOUR, place)


async def _report_usage(tx: Tx, place: str | None) -> DutyResult:
    """Notes an hour once it has begun, and reports the hours before it once their transactions are visible."""
    if place is None:
        return DutyResult(SETTLING_SECONDS, await usage_events.note_hour(tx))
    told = await usage_events.emit_usage(tx, place)
    return DutyResult(told.seconds, None if told.done else place)


async def _run_checks(tx: Tx, place: str | None) -> DutyResult:
    for one in await checks.refresh_findings(tx):
        tell = log.info if one.verdict is Verdict.OK else log.warning
        tell(
            "check_changed", check=one.check, verdict=one.verdict.value, detail=one.detail, advice=one.advice
        )
    return DutyResult(CHECK_SECONDS, place)


async def _sample_consistency(tx: Tx, place: str | None) -> DutyResult:
    """Checks the consistency of all jobs, slowly: one part takes some tens of milliseconds."""
    sampled = await consistency.check_next_piece(tx, place)
    for one in sampled.faults:
        log.error("inconsistency", kind=one.kind.value, id=str(one.id), problem=one.problem)
    return DutyResult(DAY if sampled.place is None else SAMPLE_SECONDS, sampled.place)


async def _measure_stored_bytes(tx: Tx, place: str | None) -> DutyResult:
    """Estimates the stored bytes of some tenants; the next round continues with the next tenants."""
    last = await quotas.measure_bytes(tx, place=UUID(place) if place is not None else None, limit=MEASURED)
    return DutyResult(MEASURE_SECONDS, None) if last is None else DutyResult(MEASURING_SECONDS, str(last))


async def _forget_expired(tx: Tx, place: str | None) -> DutyResult:
    await access.forget_sessions(tx)
    await pending_sign_ins.forget(tx)
    await second_factors.forget_setups(tx)
    await account_links.forget(tx)
    await identities.forget_expired(tx)
    await idempotency.remove_old(tx)
    await hooks.remove_old(tx, days=REMEMBERED_DAYS)
    await hosts.remove_leftovers(tx)
    await worker_claims.remove_old(tx)
    await allowances.remove_full_budgets(tx)
    await open_connections.remove_expired(tx)
    more = await sources.forget_messages(tx, limit=FORGET) == FORGET
    more |= await kept_keys.free_over(tx, limit=FORGET) == FORGET
    more |= await kept_keys.forget_debounced(tx, limit=FORGET) == FORGET
    return DutyResult(AT_ONCE if more else HOUR, place)


async def _clear_account_mails(tx: Tx, place: str | None) -> DutyResult:
    """Removes the links with which people set a password from the payloads of mails that have ended."""
    more = await account_links.clear_mails(tx, limit=FORGET) == FORGET
    return DutyResult(AT_ONCE if more else MINUTE, place)


async def _wake_sleepers(tx: Tx, place: str | None) -> DutyResult:
    await workflow_progress.settle_ended_steps(tx, limit=SLEEPERS)
    await durable.settle_children(tx, limit=SLEEPERS)
    await workflow_progress.wake_sleepers(tx, limit=SLEEPERS)
    # a job whose row is locked is found again; with a pause, or this would loop until the row is free
    return DutyResult(SLEEPERS_SECONDS, place)


async def _escalate_approvals(tx: Tx, place: str | None) -> DutyResult:
    """Emit the events of approvals that have waited too long."""
    emitted = await approvals.escalate_overdue(tx, limit=ESCALATIONS)
    return DutyResult(AT_ONCE if emitted == ESCALATIONS else ESCALATION_SECONDS, place)


async def _release_held_jobs(tx: Tx, place: str | None) -> DutyResult:
    """Lets jobs go that are held back by a key that is free."""
    done = await limit_upkeep.release_free_keys(tx, limit_upkeep.read_place(place), look=HELD_KEYS)
    if done.released:
        log.info("held_jobs_released", jobs=done.released)
        await bulk.notify(tx, "ready")
    if done.place is None:
        return DutyResult(HELD_JOBS_SECONDS)
    return DutyResult(AT_ONCE if done.released else HELD_KEYS_SECONDS, str(done.place))


async def _remove_limit_rows(tx: Tx, place: str | None) -> DutyResult:
    """Deletes buckets that have been full for a while, and then locks of keys that nothing uses."""
    phase, _, text = (place or "buckets").partition(" ")
    start = limit_upkeep.read_place(text)
    if phase == "buckets":
        after = await limit_upkeep.remove_full_buckets(tx, start, look=LIMIT_ROWS, seconds=FULL_SECONDS)
        if after is None:
            return DutyResult(AT_ONCE, "locks")
        return DutyResult(LOOKING_SECONDS, f"buckets {after}")
    after = await limit_upkeep.remove_unused_locks(tx, start, look=LIMIT_ROWS)
    return DutyResult(HOUR) if after is None else DutyResult(LOOKING_SECONDS, f"locks {after}")
