"""What the database's own errors mean to whoever asked."""

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


def describe(url: str) -> str:
    """Where a URL points, without its password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return "an address that cannot be read"
    host = parts.get("host") or parts.get("hostaddr") or "the default socket"
    return f"{host}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
