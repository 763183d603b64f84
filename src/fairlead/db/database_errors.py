"""Translate PostgreSQL's errors into Fairlead's."""

import re

import psycopg
import psycopg_pool
from psycopg import errors as pg

from fairlead.db.addresses import can_be_read, describe_address, list_servers, unreadable_error
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


class SchemaMoved(psycopg.OperationalError):
    """Citus has moved the schema to another node; nothing of the transaction remains."""

    # earlier statements of the same work are committed: it must not be repeated
    is_partly_done = False


# A read-only server is a standby, or was the primary before a failover: another server is the primary. After a move by
# Citus, another node holds the schema.
STANDBY = (pg.ReadOnlySqlTransaction, SchemaMoved)
# The server ended an idle transaction: nothing of it remains.
IDLE = pg.IdleInTransactionSessionTimeout
# A pooler in transaction mode hands each transaction another connection, where other statements are prepared.
POOLED = (pg.DuplicatePreparedStatement, pg.InvalidSqlStatementName)
# Any other failure; `translate_error` tells them apart. Check the ones above first: they are OperationalErrors too.
FAILED = (psycopg.OperationalError, psycopg_pool.PoolTimeout, *STANDBY, *POOLED)
# SQLSTATEs of a lost connection, or of a server that accepts none now. An error without a SQLSTATE is the driver's own.
_GONE = ("08", "57P", "53300")

# A line of psycopg's message if it has tried several servers.
_FAILURE = re.compile(r"^- host: '([^']*)', port: '?([^',]*)'?, hostaddr: [^:]*?: (.*)$", re.MULTILINE)

# Which address to correct: a command may have got that of a cell.
_ADDRESS = "FAIRLEAD_DATABASE_URL, or the cell's URL"
# What to do about a connection that the server refused, or that found none, by a part of the message.
_CONNECT_ADVICE = (
    (
        re.compile("read-only"),
        (
            "It is read-only: a standby, or a primary whose default_transaction_read_only is on. Turn that off, or name "
            f"the primary in {_ADDRESS}"
        ),
    ),
    (
        re.compile("password authentication failed|no password supplied"),
        f"Correct the user or the password in {_ADDRESS}",
    ),
    (
        re.compile(r'database ".*" does not exist'),
        f"Create this database there, or correct its name in {_ADDRESS}",
    ),
    (re.compile(r'role ".*" does not exist'), f"Create this role there, or correct the user in {_ADDRESS}"),
    (
        re.compile(r"pg_hba\.conf"),
        f"Allow this machine, user and database in the server's pg_hba.conf, or correct {_ADDRESS}",
    ),
    (
        re.compile("translate host name|resolve host|Name or service not known|nodename nor servname"),
        f"No address was found for this host: correct it in {_ADDRESS}",
    ),
    (
        re.compile("too many clients|remaining connection slots|too many connections"),
        "Close other connections, raise its max_connections, or lower FAIRLEAD_POOL_SIZE",
    ),
    (re.compile("is starting up|is shutting down|in recovery mode"), "Try again in a moment"),
    (
        re.compile("does not support SSL|certificate"),
        f"Correct sslmode and the certificates that it needs, in {_ADDRESS}",
    ),
)

_POOLED_ADVICE = (
    "A pooler in transaction mode is in between: set FAIRLEAD_DIRECT_URL to an address of the same database that "
    "bypasses it"
)
_ADVICE = {
    "26000": _POOLED_ADVICE,
    "42P05": _POOLED_ADVICE,
    "53100": "Its disk is full: free some space there",
    "53200": "It is out of memory: give it more, or lower its work_mem or max_connections",
    "54": "A value is larger than PostgreSQL can keep: make it smaller",
}


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
    if isinstance(error, (psycopg_pool.PoolTimeout, *STANDBY)):
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
    if not can_be_read(url):
        return unreadable_error()
    if len(list_servers(url)) > 1:
        return DatabaseUnreachable(
            f"None of the servers in {describe_address(url)} can be written to: {describe_failure(error)}. A failover "
            "takes some seconds: try again. If it lasts, see with `patronictl list`, or what you manage them with, why "
            "none of them is the primary; or correct FAIRLEAD_DATABASE_URL."
        )
    return DatabaseUnreachable(
        f"Cannot use the database at {describe_address(url)}: {first_line(error)}. {_advise(error)}."
    )


def _advise(error: Exception) -> str:
    """What to do about a connection that was lost or not established."""
    return next(
        (advice for cause, advice in _CONNECT_ADVICE if cause.search(str(error))),
        f"Start PostgreSQL there, or correct {_ADDRESS}",
    )


def advise_waiting(error: Exception) -> str:
    """What to do if the server accepts a connection now, but a statement had none or lost its own."""
    if "pool initialization incomplete" in str(error):
        return (
            "if a pooler is in between, let its default_pool_size be at least the connections of all processes together: "
            "FAIRLEAD_POOL_SIZE and two more for each"
        )
    if isinstance(error, psycopg_pool.PoolTimeout):
        return "if its connections are all busy, raise FAIRLEAD_POOL_SIZE"
    return "it answers again: repeat the request"


def is_data_error(error: Exception) -> bool:
    """Whether PostgreSQL cannot store a value: a retry does not help."""
    if isinstance(error, DatabaseRefused):
        return isinstance(error.__cause__, pg.ProgramLimitExceeded)
    return isinstance(error, psycopg.DataError)


def describe_failure(error: Exception) -> str:
    """Why no connection was established: for each server, if several were tried."""
    failures = _FAILURE.findall(str(error))
    if not failures:
        return first_line(error)
    return "; ".join(
        f"{host}:{port}: {why.rsplit('failed: ', 1)[-1].rstrip('.')}" for host, port, why in failures
    )


def first_line(error: Exception) -> str:
    """The first line of libpq's message, without the hints after it."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
