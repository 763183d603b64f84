"""Checks of PostgreSQL's settings: each with its finding and advice."""

from fairlead.model.finding import Finding, Verdict, grade_finding
from fairlead.settings import Settings
from fairlead.store.checks import ServerState

# A lost peer should be noticed within minutes, not after the default of two hours.
KEEPALIVE_SECONDS = 600
# A worker's connections outside its pool: heartbeats and the listener.
BESIDE_POOL = 2
USED_SHARE = 0.85
# PostgreSQL stops at two billion transactions.
FROZEN_AGE, FROZEN_FAIL_AGE = 1_000_000_000, 1_600_000_000


def judge_server(server: ServerState, settings: Settings) -> list[Finding]:
    """The findings for every setting that Fairlead depends on."""
    return [
        _check_isolation(server),
        _check_idle_timeout(server, settings),
        _check_keepalives(server),
        _check_standby(server),
        _check_connections(server, settings),
        _check_wraparound(server),
        _check_autovacuum(server),
    ]


def _finding(check: str, detail: str, advice: str, *, fine: bool, bad: Verdict = Verdict.WARN) -> Finding:
    return Finding(check, Verdict.OK, detail) if fine else Finding(check, bad, detail, advice)


def _check_isolation(server: ServerState) -> Finding:
    return _finding(
        "isolation",
        f"default_transaction_isolation = {server.isolation}",
        "Set it to 'read committed'. Fairlead's own sessions use that anyway; transactions of your application that "
        "enqueue with tx= begin with this one, and may be refused where others change the same rows.",
        fine=server.isolation == "read committed",
    )


def _check_idle_timeout(server: ServerState, settings: Settings) -> Finding:
    ours, others = server.idle_milliseconds, server.default_idle_milliseconds
    detail = (
        f"idle_in_transaction_session_timeout = {_seconds(ours)} here, {_seconds(others)} in other sessions"
    )
    return _finding(
        "idle_timeout",
        detail,
        "A process that is frozen or cut off in a transaction holds its locks for ever. Set "
        f"idle_in_transaction_session_timeout to a lease ({settings.lease_seconds:.0f}s) or less for this role: "
        "alter role … set idle_in_transaction_session_timeout = …",
        fine=0 < ours <= settings.lease_seconds * 1000,
    )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s" if milliseconds else "off"


def _check_keepalives(server: ServerState) -> Finding:
    if not server.is_remote:
        return Finding("keepalives", Verdict.OK, "connected through a local socket")
    return _finding(
        "keepalives",
        f"tcp_keepalives_idle = {server.keepalives_idle} s on the server",
        "A lost machine keeps its connections, and their locks, until PostgreSQL notices. Set "
        "tcp_keepalives_idle = 60, tcp_keepalives_interval = 10, tcp_keepalives_count = 3.",
        fine=0 < server.keepalives_idle <= KEEPALIVE_SECONDS,
    )


def _check_standby(server: ServerState) -> Finding:
    """Whether acknowledged jobs are on a standby, too, if there is one."""
    detail = (
        f"synchronous_commit = {server.synchronous_commit}, synchronous_standby_names = "
        f"{server.standby_names!r}, {server.standbys} standby(s) connected"
    )
    if not server.standby_names:
        return _finding(
            "standby",
            detail,
            "No standby is synchronous: a failover can lose the last jobs that were acknowledged. Set "
            "synchronous_standby_names to wait for one of them; with Patroni run `patronictl edit-config` and set "
            "synchronous_mode: true and synchronous_mode_strict: true.",
            fine=not server.standbys,
        )
    if server.synchronous_commit in ("local", "off"):
        return Finding(
            "standby",
            Verdict.WARN,
            detail,
            "Commits do not wait for the standby that synchronous_standby_names asks for: a failover may lose jobs that "
            "were acknowledged. Set synchronous_commit = on for this role.",
        )
    return _finding(
        "standby",
        detail,
        "No synchronous standby is connected, so every commit waits for one. Connect it, or clear "
        "synchronous_standby_names.",
        fine=server.synchronous_standbys > 0,
        bad=Verdict.FAIL,
    )


def _check_connections(server: ServerState, settings: Settings) -> Finding:
    each = BESIDE_POOL + (0 if settings.pooled else settings.pool_size)
    most = server.workers * each
    detail = (
        f"{server.connected} of {server.connections} connections are used; {server.workers} worker process(es) may "
        f"use up to {most}"
    )
    return _finding(
        "connections",
        detail,
        "Raise max_connections, lower FAIRLEAD_POOL_SIZE, run fewer processes with more --concurrency, or put "
        "PgBouncer in between.",
        fine=most <= server.connections and server.connected <= server.connections * USED_SHARE,
    )


def _check_wraparound(server: ServerState) -> Finding:
    return grade_finding(
        "wraparound",
        server.frozen_age,
        warn=max(FROZEN_AGE, server.freeze_max_age),
        fail=FROZEN_FAIL_AGE,
        fine=f"the oldest unfrozen transaction is {server.frozen_age} transactions old",
        detail=f"the oldest unfrozen transaction is {server.frozen_age} transactions old; at 2 000 000 000 PostgreSQL "
        "stops accepting writes",
        advice="Run VACUUM FREEZE on the largest tables, and end what holds back vacuum (see oldest_xmin).",
    )


def _check_autovacuum(server: ServerState) -> Finding:
    return _finding(
        "autovacuum",
        f"autovacuum = {server.autovacuum}, track_counts = {server.track_counts}",
        "Set autovacuum = on and track_counts = on: the queue's tables turn over completely, and claims slow down.",
        fine=server.autovacuum == "on" and server.track_counts == "on",
        bad=Verdict.FAIL,
    )
