"""Settings of our sessions: timeouts and TCP keepalives."""

from collections.abc import Mapping
from typing import Any

from fairlead.settings import Settings

# The client notices a lost peer (a firewall, a dead machine) within half a minute.
KEEPALIVES = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
# The server notices a lost client, too, and releases its locks.
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
# A transaction may be idle for this part of a lease: a process that stops inside one must not block the others for longer.
IDLE_PART = 1 / 3
SHORTEST_IDLE_SECONDS = 1.0
# A bulk load checks all its rows between two statements.
UNHURRIED_IDLE_SECONDS = 600.0
# Cancelling a statement, and waiting for its end, may each take this part of a lease where the network is stalled: a handler
# that must stop, because its lease was not renewed, then stops in the margin that the heartbeat leaves.
CANCEL_PART = 1 / 40
LONGEST_CANCEL_SECONDS = 5.0


def session_settings(settings: Settings) -> dict[str, str]:
    """The settings of a whole session."""
    # limits are exact only if each statement of a claim sees everything that was committed before it
    return {
        "default_transaction_isolation": "read committed",
        **SERVER_KEEPALIVES,
        **timeout_settings(settings),
    }


def idle_seconds(settings: Settings) -> float:
    """How long a transaction may be idle."""
    return max(SHORTEST_IDLE_SECONDS, settings.lease_seconds * IDLE_PART)


def cancel_seconds(settings: Settings) -> float:
    """How long the cancel of a statement may take, and then its end, before its connection is closed."""
    return min(LONGEST_CANCEL_SECONDS, settings.lease_seconds * CANCEL_PART)


def timeout_settings(settings: Settings, *, unhurried: bool = False) -> dict[str, str]:
    """Timeouts of statements, lock waits and idle transactions."""
    seconds = {
        "statement_timeout": 0.0 if unhurried else settings.statement_timeout_seconds,
        "lock_timeout": settings.lock_timeout_seconds,
        "idle_in_transaction_session_timeout": UNHURRIED_IDLE_SECONDS
        if unhurried
        else idle_seconds(settings),
    }
    return {name: str(int(value * 1000)) for name, value in seconds.items()}


def set_config_statement(settings: Mapping[str, str], *, local: bool) -> Any:
    """The statement that sets these settings for the session or (local) for the transaction."""
    scope = str(local).lower()
    return "select " + ", ".join(
        f"set_config('{name}', '{value}', {scope})" for name, value in settings.items()
    )
