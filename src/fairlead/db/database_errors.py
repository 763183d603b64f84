"""Translate PostgreSQL's errors into Fairlead's."""

import re

import psycopg
import psycopg_pool
from psycopg import errors as pg

from fairlead.errors import (
    DatabaseBusy,
    DatabaseRefused,
    DatabaseUnreachable,
    FairleadError,
    TransactionIdle,
)

# PostgreSQL asks to repeat these. Nothing of the failed transaction remains.
SAFE_TO_REPEAT = (pg.SerializationFailure, pg.DeadlockDetected)
TOO_SLOW = (pg.QueryCanceled, pg.LockNotAvailable)
# A read-only server is a standby, or was the primary before a failover: another server is the primary.
STANDBY = pg.ReadOnlySqlTransaction
# The server ended an idle transaction: nothing of it remains.
IDLE = pg.IdleInTransactionSessionTimeout
# Any other failure; `translate_error` tells them apart. Check the ones above first: they are OperationalErrors too.
FAILED = (psycopg.OperationalError, psycopg_pool.PoolTimeout, STANDBY)
# SQLSTATEs of a lost connection, or of a server that accepts none now. An error without a SQLSTATE is the driver's own.
_GONE = ("08", "57P", "53300")

_ADVICE = {
    "53100": "Its disk is full: free some space there",
    "53200": "It is out of memory: give it more, or lower its work_mem or max_connections",
    "54": "A value is larger than PostgreSQL can keep: make it smaller",
}

# A password with an unescaped @ or /: libpq takes the rest for the host, and messages would show it.
_MISLEADING = re.compile(r"\w+://[^@/]*[@/][^?@]*@")


def translate_error(error: Exception, url: str) -> FairleadError | None:
    """The Fairlead error for a database error; None for any other error."""
    if isinstance(error, TOO_SLOW + SAFE_TO_REPEAT):
        return busy_error(error)
    if isinstance(error, IDLE):
        return idle_error(error)
    if not isinstance(error, FAILED):
        return None
    return unreachable_error(url, error) if is_lost(error) else refused_error(error)


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost or not established: another one may work."""
    if isinstance(error, psycopg_pool.PoolTimeout | STANDBY):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_GONE)


def refused_error(error: Exception) -> DatabaseRefused:
    """The error for a statement that PostgreSQL cannot run, however often it is repeated."""
    code = getattr(error, "sqlstate", None) or ""
    advice = _ADVICE.get(code) or _ADVICE.get(code[:2]) or "Its log has more"
    return DatabaseRefused(f"PostgreSQL could not run the statement ({code}): {first_line(error)}. {advice}.")


def idle_error(error: Exception) -> TransactionIdle:
    """The error for a transaction that was left open and idle."""
    return TransactionIdle(
        f"PostgreSQL ended a transaction that was idle for more than a third of a lease: {first_line(error)}. "
        "Nothing of it remains. Do slow work before the transaction or after it, or raise FAIRLEAD_LEASE_SECONDS."
    )


def busy_error(error: Exception) -> DatabaseBusy:
    """The error for a timeout or a conflict that lasted."""
    return DatabaseBusy(
        f"The database did not run the statement in time: {first_line(error)}. Another transaction holds locks that this one "
        "needs; end it, or try again."
    )


def unreachable_error(url: str, error: Exception) -> DatabaseUnreachable:
    """The error for a connection that was lost or not established."""
    if not _can_be_read(url):
        return _unreadable_error()
    return DatabaseUnreachable(
        f"Cannot use the database at {describe_address(url)}: {first_line(error)}. Start PostgreSQL there, or correct "
        "FAIRLEAD_DATABASE_URL."
    )


def is_data_error(error: Exception) -> bool:
    """Whether PostgreSQL cannot store a value: a retry does not help."""
    if isinstance(error, DatabaseRefused):
        return isinstance(error.__cause__, pg.ProgramLimitExceeded)
    return isinstance(error, psycopg.DataError)


def first_line(error: Exception) -> str:
    """The first line of libpq's message, without the hints after it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def check_address(url: str) -> None:
    """Refuse an unreadable address before the driver does: its message would quote the password."""
    if not _can_be_read(url):
        raise _unreadable_error()


def _can_be_read(url: str) -> bool:
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return _MISLEADING.match(url) is None


def _unreadable_error() -> DatabaseUnreachable:
    return DatabaseUnreachable(
        "The address of the database cannot be read (it is not shown, since a password may be in it). Correct "
        "FAIRLEAD_DATABASE_URL, or FAIRLEAD_DIRECT_URL: postgresql://user:password@host:5432/database, and in the "
        "password %40 for @, %2F for / and %25 for %."
    )


def describe_address(url: str) -> str:
    """Where a URL points, without its password."""
    if not _can_be_read(url):
        return "an address that cannot be read"
    parts = psycopg.conninfo.conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "the default socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
