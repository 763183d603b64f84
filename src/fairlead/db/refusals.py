"""What the database's own errors mean to whoever asked."""

import re

import psycopg
import psycopg_pool
from psycopg import errors as pg

from fairlead.errors import DatabaseBusy, DatabaseUnreachable, FairleadError

# What PostgreSQL itself asks to be tried again. Nothing of the failed transaction remains.
SAFE_TO_REPEAT = (pg.SerializationFailure, pg.DeadlockDetected)
TOO_SLOW = (pg.QueryCanceled, pg.LockNotAvailable)
# A server that only reads is not, or no longer, the one that we need: another is taking its place.
STANDBY = pg.ReadOnlySqlTransaction
# After the ones above: they are OperationalErrors too.
LOST = (psycopg.OperationalError, psycopg_pool.PoolTimeout, STANDBY)

# A password with @ or / in it as they are: libpq takes what follows for the host, and messages would name that.
_MISLEADING = re.compile(r"\w+://[^@/]*[@/][^?@]*@")


def as_refusal(error: Exception, url: str) -> FairleadError | None:
    """What to tell whoever asked, if it was the database that could not."""
    if isinstance(error, TOO_SLOW + SAFE_TO_REPEAT):
        return busy(error)
    return unreachable(url, error) if isinstance(error, LOST) else None


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
