"""Databases for tests: copies of a template, each for one test."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg

from fairlead.db.scratch import replace_database

# A database is dropped when this many tests have begun after it: DROP DATABASE waits for a tenth of a second if one of
# its sessions is still ending.
KEPT = 4

Connection = psycopg.Connection[Any]


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
    """Copies of a template on one server, or on all nodes of a Citus cluster. Close them at the end."""

    def __init__(self, server: str, template: str, nodes: Sequence[Connection]) -> None:
        self._server = server
        self._template = template
        self._nodes = nodes
        self._used: deque[str] = deque()
        if len(nodes) == 1:
            # A session writes down what it read of the system catalogs: a copy of the files has it, too.
            psycopg.connect(replace_database(server, template)).close()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a new copy; its sessions are ended at the end of the block."""
        name = f"test_{uuid4().hex[:12]}"
        self._copy(name)
        yield replace_database(self._server, name)
        for node in self._nodes:
            node.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        self._used.append(name)

    def _copy(self, name: str) -> None:
        while len(self._used) >= KEPT:
            old = self._used.popleft()
            for node in self._nodes:
                node.execute(f"drop database {old} with (force)".encode())
        copy_database(self._nodes, name, self._template)


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
