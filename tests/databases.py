"""Databases for tests: copies of a template, each for one test."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg

from fairlead.db.scratch import replace_database
from tests.restoring import Copy, Original
from tests.sessions import Sessions

# A database is dropped when this many tests have begun after it: DROP DATABASE waits for a tenth of a second if one of
# its sessions is still ending.
KEPT = 4

# A database is lent this often: restored tables and indexes keep the space of deleted rows.
MOST_USES = 50

Connection = psycopg.Connection[Any]

OTHERS = "select exists (select from pg_stat_activity where datname = %s and pid <> all (%s))"


def copy_database(nodes: Sequence[Connection], name: str, template: str) -> None:
    """Copy a database on each node: the only one, or all those of a Citus cluster."""
    for node in nodes:
        if len(nodes) > 1:
            # a maintenance process of Citus is connected to each database that was used
            node.execute(f"alter database {template} allow_connections false".encode())
            node.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s", [template]
            )
        # files are copied in half the time that it takes to write every page to the log
        copying = f"create database {name} template {template} strategy file_copy"
        node.execute(copying.encode())


class Databases:
    """Copies of a template on one server, or on all nodes of a Citus cluster.

    A copy that a test left as the template is, apart from rows, is restored and lent again. Close them at the end.
    """

    def __init__(self, server: str, template: str, nodes: Sequence[Connection], sessions: Sessions) -> None:
        self._server = server
        self._template = template
        self._nodes = nodes
        self._sessions = sessions
        self._copies: dict[str, Copy] = {}
        self._used: deque[str] = deque()
        self._original: Original | None = None
        if len(nodes) == 1:
            # A session writes down what it read of the system catalogs: a copy of the files has it, too.
            self._original = Original(replace_database(server, template))

    @contextmanager
    def lend(self, *, new: bool = False) -> Iterator[str]:
        """The URL of a copy; its sessions are ended at the end of the block. A new copy is dropped afterwards."""
        name = self._take(new=new or self._original is None)
        yield replace_database(self._server, name)
        kept = self._list_kept(name)
        for node in self._nodes:
            node.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> all (%s)",
                [name, kept],
            )
        self._used.append(name)

    def _take(self, *, new: bool) -> str:
        while len(self._used) >= KEPT:
            old = self._used.popleft()
            if not new and self._restore(old):
                return old
            self._drop(old)
        name = f"test_{uuid4().hex[:12]}"
        copy_database(self._nodes, name, self._template)
        if not new and self._original is not None:
            self._copies[name] = Copy(replace_database(self._server, name), self._original)
            self._sessions.share(name)
        return name

    def close(self) -> None:
        """End the sessions of this process; the databases go with their server."""
        for name, copy in self._copies.items():
            self._sessions.end(name)
            copy.close()

    def _restore(self, name: str) -> bool:
        copy = self._copies.get(name)
        if copy is None:
            return False
        [(others,)] = self._nodes[0].execute(OTHERS, [name, self._list_kept(name)]).fetchall()
        return not others and copy.uses < MOST_USES and copy.restore()

    def _list_kept(self, name: str) -> list[int]:
        """The server processes of the sessions that outlive a test."""
        copy = self._copies.get(name)
        return [*self._sessions.list_pids(name), *(copy.pids if copy else ())]

    def _drop(self, name: str) -> None:
        self._sessions.end(name)
        if copy := self._copies.pop(name, None):
            copy.close()
        for node in self._nodes:
            node.execute(f"drop database {name} with (force)".encode())


def find_in_database(url: str, text: str) -> list[str]:
    """The tables with a row that has this text."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "select relname from pg_class where relnamespace = 'fairlead'::regnamespace and relkind = 'r'"
        ).fetchall()
        return [
            name
            for (name,) in names
            if connection.execute(
                f"select from fairlead.{name} r where r::text like %s limit 1", [f"%{text}%"]
            ).fetchone()
            is not None
        ]
