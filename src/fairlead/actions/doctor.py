"""The checks of `fairlead doctor`, each with its finding and advice."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from fairlead.actions import checks, consistency, repair, server_checks
from fairlead.db import migrate
from fairlead.db.addresses import WRITABLE, describe_address, list_servers, read_target
from fairlead.db.database import Database
from fairlead.db.listen import check_round_trip
from fairlead.db.pooler import changes_connections
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError
from fairlead.model.finding import Finding, Verdict
from fairlead.model.inconsistency import Inconsistency
from fairlead.settings import Settings
from fairlead.store import checks as stored
from fairlead.store import resealing, sealing, system

SKEW_SECONDS = 2.0


async def examine(
    url: str, settings: Settings, unknown: Sequence[str] = (), *, full: bool = False
) -> AsyncIterator[Finding]:
    """Every check, one after the other; skips checks that depend on a failed one.

    `full` compares the whole record with the queue, not only new and unfinished jobs. No transaction lasts long, so that
    a migration need not wait.
    """
    yield _check_variables(unknown)
    direct = settings.direct_url or url
    for address in dict.fromkeys((url, direct)):
        if (finding := check_target(address)) is not None:
            yield finding
    database = Database(url, settings)
    try:
        await database.open()
    except FairleadError as error:
        yield Finding("database", Verdict.FAIL, error.message)
        return
    try:
        async with database.transaction() as tx:
            yield Finding("database", Verdict.OK, _describe_reached(url, tx))
            asked_at = datetime.now(UTC)
            facts = await system.read_facts(tx)
            for finding in judge_facts(facts, asked_at, datetime.now(UTC)):
                yield finding
        if not (settings.pooled or settings.citus):
            yield await _run_guarded("pooler", lambda: _check_pooler(url))
        yield await _run_guarded("notifications", lambda: _check_notifications(direct, settings))
        current = await _run_guarded("schema", lambda: _check_schema(direct, settings.schema))
        yield current
        if current.verdict is Verdict.OK:
            for look in (_check_rights, _check_row_security, _check_audit_days, _check_encryption):
                yield await database.transact(look)
            for finding in server_checks.judge_server(
                await database.transact(stored.read_server_state), settings
            ):
                yield finding
            for finding in await database.transact(checks.examine_hot):
                yield finding
            yield judge_faults([one async for one in consistency.find_faults(database, full=full)], full=full)
    finally:
        await database.close()


def check_target(url: str) -> Finding | None:
    """The finding for an address whose servers are chosen by something else than being the primary; None if it is fine."""
    target = read_target(url)
    if target is None or target in WRITABLE or len(list_servers(url)) == 1:
        return None
    return Finding(
        "address",
        Verdict.WARN,
        f"{describe_address(url)} names several servers with target_session_attrs={target}",
        "A connection may reach a standby, which refuses every write. Remove target_session_attrs (Fairlead then uses "
        "the primary), or set it to read-write.",
    )


def _describe_reached(url: str, tx: Tx) -> str:
    reached = f"reached at {describe_address(url)}"
    if len(list_servers(url)) == 1:
        return reached
    return f"{reached}; the primary is {tx.connection.info.host}:{tx.connection.info.port}"


def _check_variables(unknown: Sequence[str]) -> Finding:
    if not unknown:
        return Finding("settings", Verdict.OK, "every FAIRLEAD_ variable is a known setting")
    names = ", ".join(unknown)
    return Finding("settings", Verdict.WARN, f"unknown setting: {names}", "Correct the name, or unset it.")


def judge_facts(facts: system.DatabaseFacts, asked_at: datetime, answered_at: datetime) -> list[Finding]:
    """The findings about the server's settings, which were asked for and answered at these times of this machine's clock."""
    return [
        # one that is too old was refused when it was opened
        Finding("version", Verdict.OK, facts.version),
        _finding(
            "encoding", facts.encoding == "UTF8", facts.encoding, "Create the database with ENCODING 'UTF8'."
        ),
        _finding(
            "fsync",
            facts.fsync == "on",
            f"fsync = {facts.fsync}",
            "Set fsync = on: without it a crash loses jobs that were acknowledged.",
        ),
        _finding(
            "full_page_writes",
            facts.full_page_writes == "on",
            f"full_page_writes = {facts.full_page_writes}",
            "Set full_page_writes = on: without it a crash can corrupt the database.",
        ),
        _finding(
            "synchronous_commit",
            facts.synchronous_commit != "off",
            f"synchronous_commit = {facts.synchronous_commit}",
            "Set synchronous_commit = on: with off a crash loses jobs that were acknowledged.",
        ),
        # a slow answer is no difference
        _check_skew(max(asked_at - facts.clock, facts.clock - answered_at, timedelta(0)).total_seconds()),
    ]


def _check_skew(seconds: float) -> Finding:
    detail = f"this machine and the database differ by {seconds:.1f} s"
    if seconds <= SKEW_SECONDS:
        return Finding("clock", Verdict.OK, detail)
    advice = "Nothing breaks (the database's clock decides), but run NTP on both, so that times in logs can be compared."
    return Finding("clock", Verdict.WARN, detail, advice)


def _finding(check: str, fine: bool, detail: str, advice: str) -> Finding:  # noqa: FBT001
    return Finding(check, Verdict.OK, detail) if fine else Finding(check, Verdict.FAIL, detail, advice)


async def _run_guarded(check: str, look: Callable[[], Awaitable[Finding]]) -> Finding:
    try:
        return await look()
    except FairleadError as error:
        return Finding(check, Verdict.FAIL, error.message)  # the message has the advice


async def _check_schema(url: str, schema: str) -> Finding:
    await migrate.check(url, schema)
    newest = migrate.list_migrations()[-1]
    return Finding("schema", Verdict.OK, f"{schema} is current ({newest.number:04} {newest.name})")


async def _check_pooler(url: str) -> Finding:
    if not await changes_connections(url):
        return Finding("pooler", Verdict.OK, "a connection keeps its session")
    return Finding(
        "pooler",
        Verdict.FAIL,
        "a pooler in transaction mode is in between: prepared statements and settings do not outlive a transaction",
        "Workers fail. Set FAIRLEAD_DIRECT_URL to an address of the same database that bypasses the pooler.",
    )


async def _check_notifications(url: str, settings: Settings) -> Finding:
    if await check_round_trip(url, settings.schema, citus=settings.citus):
        return Finding("notifications", Verdict.OK, "LISTEN and NOTIFY work")
    return Finding(
        "notifications",
        Verdict.WARN,
        "a notification did not come back",
        "Jobs start by polling only. If a pooler is in between, set FAIRLEAD_DIRECT_URL to an address that "
        "does not pass it.",
    )


async def _check_rights(tx: Tx) -> Finding:
    missing = await system.list_missing_rights(tx)
    if not missing:
        return Finding("rights", Verdict.OK, "the role has all the rights it needs")
    return Finding(
        "rights",
        Verdict.FAIL,
        f"the role lacks {len(missing)} right(s): {'; '.join(missing[:5])}",
        "Connect as the role that ran the migrations, or GRANT these to this one.",
    )


async def _check_row_security(tx: Tx) -> Finding:
    faults = await system.list_row_security_faults(tx)
    if not faults:
        return Finding("row_security", Verdict.OK, "row-level security limits tenants to their own rows")
    return Finding(
        "row_security",
        Verdict.FAIL,
        f"{len(faults)} fault(s): {'; '.join(faults[:5])}",
        "For the roles, as an administrator: create role fairlead_system nologin; create role fairlead_tenant "
        "nologin; grant fairlead_system, fairlead_tenant to this role. For the tables, find out who changed them: "
        "migrations/0001_schema.sql has the policies.",
    )


async def _check_audit_days(tx: Tx) -> Finding:
    days = await system.count_audit_days(tx)
    if days > 1:
        return Finding("audit", Verdict.OK, f"partitions exist for {days} days")
    return Finding(
        "audit",
        Verdict.WARN,
        "no partition is prepared for tomorrow",
        "Run: fairlead migrate up (it prepares the coming week; rows meanwhile go to audit_log_rest).",
    )


async def _check_encryption(tx: Tx) -> Finding:
    """Whether secrets are encrypted, and whether this process can open them all."""
    ring, enabled = tx.keyring, await sealing.is_on(tx)
    if not enabled:
        advice = (
            ""
            if ring.current_master is None
            else "Run `fairlead keys enable` when every process has the key."
        )
        verdict = Verdict.OK if ring.current_master is None else Verdict.WARN
        return Finding("encryption", verdict, "secrets are stored in plain form", advice)
    keys = await resealing.list_keys(tx)
    if missing := {key.master_key for key in keys} - ring.masters.keys():
        return Finding(
            "encryption",
            Verdict.FAIL,
            f"secrets are encrypted, and this process lacks the master key {', '.join(sorted(missing))}",
            "Set encryption_key, or encryption_old_keys, as in the other processes.",
        )
    old = [
        key for key in keys if ring.current_master is not None and key.master_key != ring.current_master.id
    ]
    if old:
        return Finding(
            "encryption",
            Verdict.WARN,
            f"{len(old)} data keys are wrapped by an earlier master key",
            "Run `fairlead keys rotate`.",
        )
    return Finding("encryption", Verdict.OK, f"secrets are encrypted with {len(keys)} data keys")


def judge_faults(faults: Sequence[Inconsistency], *, full: bool) -> Finding:
    """The finding of the walk through queue and record."""
    if not faults:
        looked = "of all jobs" if full else f"of the newest {consistency.NEWEST} jobs (--full: of all)"
        return Finding("consistency", Verdict.OK, f"queue and record agree, {looked}", value=0)
    mendable = all(repair.can_mend(one) for one in faults)
    return Finding(
        "consistency",
        Verdict.FAIL,
        f"{len(faults)} disagreement(s): {'; '.join(str(one) for one in faults[:5])}",
        "This should never happen: keep a dump of the schema and report it. "
        + (
            "Then run: fairlead doctor --repair"
            if mendable
            else "fairlead doctor --repair fixes a part of it."
        ),
        len(faults),
    )
