"""Server sessions that tests of one process share: a new one loads the catalogs anew, which costs more than most tests do."""

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import pq
from psycopg._connection_base import BaseConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn

# Of one database. Few tests open more, and each takes 7 MB.
MOST = 4
SETTLED = (pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)


# Until then it has another name: tests look for sessions by name. Fails if there are settings that only new sessions have.
TAKE = b"""
reset application_name;
select 1 / (count(*) = 0)::int from pg_db_role_setting
where setdatabase in (0, (select oid from pg_database where datname = current_database()))
"""

Connect = Callable[[str], Generator[Any, Any, PGconn]]


class Sessions:
    """The idle sessions of some databases. A connection that is closed leaves its session here, reset, for the next one."""

    def __init__(self, server: str) -> None:
        self._host = conninfo_to_dict(server).get("host")
        self._idle: dict[str, dict[str, list[PGconn]]] = {}
        self._addresses: dict[int, tuple[PGconn, str, str]] = {}
        self._process = os.getpid()
        self._gone = pq.PGconn.connect(b"host=/nowhere")
        self._gone.finish()

    def share(self, database: str) -> None:
        """Keep the sessions of this database from now on."""
        self._idle[database] = defaultdict(list)

    def end(self, database: str) -> None:
        """End the kept sessions, and keep none from now on."""
        for lines in self._idle.pop(database, {}).values():
            for line in lines:
                line.finish()
        self._addresses = {key: value for key, value in self._addresses.items() if value[1] != database}

    def list_pids(self, database: str) -> list[int]:
        """The server processes of the kept sessions."""
        return [line.backend_pid for lines in self._idle.get(database, {}).values() for line in lines]

    def connect(self, conninfo: str, connect: Connect) -> Generator[Any, Any, PGconn]:
        """An idle session with these parameters, or a new one."""
        parts = conninfo_to_dict(conninfo)
        database = str(parts.get("dbname"))
        # not those through a proxy
        if parts.get("host") != self._host or database not in self._idle or os.getpid() != self._process:
            return (yield from connect(conninfo))
        lines = self._idle[database][conninfo]
        while lines:
            line = lines.pop()
            if _run(line, TAKE):
                return line
            self._addresses.pop(id(line), None)
            line.finish()
        line = yield from connect(conninfo)
        self._addresses[id(line)] = line, database, conninfo
        return line

    def keep(self, connection: BaseConnection[Any]) -> bool:
        """Take over the session of a connection that is being closed; False if it has to end."""
        line = connection.pgconn
        _, database, conninfo = self._addresses.get(id(line), (None, "", ""))
        if database not in self._idle or os.getpid() != self._process:
            return False
        lines = self._idle[database][conninfo]
        if len(self.list_pids(database)) >= MOST or not _reset(line):
            del self._addresses[id(line)]
            return False
        connection.pgconn = self._gone
        connection._closed = True
        line.notice_handler = line.notify_handler = None
        lines.append(line)
        return True


def _reset(line: PGconn) -> bool:
    """Whether the session is now as if it were new."""
    if line.status != pq.ConnStatus.OK or line.pipeline_status or line.transaction_status not in SETTLED:
        return False
    if line.transaction_status != pq.TransactionStatus.IDLE and not _run(line, b"rollback"):
        return False
    return _run(line, b"discard all") and _run(line, b"set application_name = 'kept for the next test'")


def _run(line: PGconn, statement: bytes) -> bool:
    """Whether the statement succeeded."""
    try:
        result = line.exec_(statement)
    except psycopg.Error:
        return False
    while line.notifies():  # of the test before
        pass
    return result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


@contextmanager
def shared_sessions(server: str) -> Iterator[Sessions]:
    """Let all connections of this process to this server use them."""
    sessions = Sessions(server)
    connect = psycopg.generators.connect

    def connect_shared(cls: type[BaseConnection[Any]], conninfo: str = "") -> Generator[Any, Any, Any]:
        return cls((yield from sessions.connect(conninfo, connect)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseConnection, "_connect_gen", classmethod(connect_shared))
        close, close_async = psycopg.Connection.close, psycopg.AsyncConnection.close

        def close_shared(self: psycopg.Connection[Any]) -> None:
            if not sessions.keep(self):
                close(self)

        async def close_async_shared(self: psycopg.AsyncConnection[Any]) -> None:
            if not sessions.keep(self):
                await close_async(self)

        patch.setattr(psycopg.Connection, "close", close_shared)
        patch.setattr(psycopg.AsyncConnection, "close", close_async_shared)
        yield sessions
