"""What the database's own errors mean to whoever asked."""

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

# What PostgreSQL itself asks to be tried again. Nothing of the failed transaction remains.
SAFE_TO_REPEAT = (pg.SerializationFailure, pg.DeadlockDetected)
TOO_SLOW = (pg.QueryCanceled, pg.LockNotAvailable)
# A server that only reads is not, or no longer, the one that we need: another is taking its place.
STANDBY = pg.ReadOnlySqlTransaction
# Ended by the server because it did nothing: nothing of it remains.
IDLE = pg.IdleInTransactionSessionTimeout
# What PostgreSQL could not do, for whatever reason; `explain` tells one from the other. After the ones above: they are
# OperationalErrors too.
FAILED = (psycopg.OperationalError, psycopg_pool.PoolTimeout, STANDBY)
# Of these, the connection is gone, or the server does not take one now. An error without a SQLSTATE is the driver's own.
_GONE = ("08", "57P", "53300")

_ADVICE = {
    "53100": "Its disk is full: free some space there",
    "53200": "It is out of memory: give it more, or lower its work_mem or max_connections",
    "54": "A value is larger than PostgreSQL can keep: make it smaller",
}

# A password with @ or / in it as they are: libpq takes what follows for the host, and messages would name that.
_MISLEADING = re.compile(r"\w+://[^@/]*[@/][^?@]*@")


def as_refusal(error: Exception, url: str) -> FairleadError | None:
    """What to tell whoever asked, if it was the database that could not."""
    if isinstance(error, TOO_SLOW + SAFE_TO_REPEAT):
        return busy(error)
    if isinstance(error, IDLE):
        return idle(error)
    if not isinstance(error, FAILED):
        return None
    return unreachable(url, error) if is_lost(error) else refused(error)


def is_lost(error: Exception) -> bool:
    """Whether the connection was lost, or could not be had: another one may work."""
    if isinstance(error, psycopg_pool.PoolTimeout | STANDBY):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_GONE)


def refused(error: Exception) -> DatabaseRefused:
    """What to tell those whose work PostgreSQL cannot do, however often it is asked."""
    code = getattr(error, "sqlstate", None) or ""
    advice = _ADVICE.get(code) or _ADVICE.get(code[:2]) or "Its log has more"
    return DatabaseRefused(f"PostgreSQL could not do it ({code}): {first_line(error)}. {advice}.")


def idle(error: Exception) -> TransactionIdle:
    """What to tell those who left a transaction open and did something else."""
    return TransactionIdle(
        f"PostgreSQL ended a transaction, since it was idle for more than a third of a lease: {first_line(error)}. "
        "Nothing of it remains. Do slow work before the transaction or after it, or raise FAIRLEAD_LEASE_SECONDS."
    )


def busy(error: Exception) -> DatabaseBusy:
    """What to tell those who waited in vain."""
    return DatabaseBusy(
        f"The database did not get to it in time: {first_line(error)}. Another transaction holds what this one "
        "needs; end it, or try again."
    )


def unreachable(url: str, error: Exception) -> DatabaseUnreachable:
    """What to tell those who could not connect."""
    if not _can_be_read(url):
        return _unreadable()
    return DatabaseUnreachable(
        f"Cannot use the database at {describe(url)}: {first_line(error)}. Start PostgreSQL there, or correct "
        "FAIRLEAD_DATABASE_URL."
    )


def is_of_the_data(error: Exception) -> bool:
    """Whether it is a value that PostgreSQL cannot keep: trying again does not help."""
    if isinstance(error, DatabaseRefused):
        return isinstance(error.__cause__, pg.ProgramLimitExceeded)
    return isinstance(error, psycopg.DataError)


def first_line(error: Exception) -> str:
    """What libpq said, without the hints that follow it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def check_address(url: str) -> None:
    """Refuse an address that cannot be read before the driver does: it would quote it, and the password with it."""
    if not _can_be_read(url):
        raise _unreadable()


def _can_be_read(url: str) -> bool:
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return _MISLEADING.match(url) is None


def _unreadable() -> DatabaseUnreachable:
    return DatabaseUnreachable(
        "The address of the database cannot be read (it is not shown, since a password may be in it). Correct "
        "FAIRLEAD_DATABASE_URL, or FAIRLEAD_DIRECT_URL: postgresql://user:password@host:5432/database, and in the "
        "password %40 for @, %2F for / and %25 for %."
    )


def describe(url: str) -> str:
    """Where a URL points, without its password."""
    if not _can_be_read(url):
        return "an address that cannot be read"
    parts = psycopg.conninfo.conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "the default socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
