"""Databases for tests: copies of a template, each for one test."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg

from fairlead.db.scratch import replace_database

# A database is dropped when this many tests have begun after it: DROP DATABASE waits for a tenth of a second if one of
# its sessions is still ending.
KEPT = 4


class Databases:
    """Copies of a template on one server. Close them at the end."""

    def __init__(self, server: str, template: str) -> None:
        self._server = server
        self._template = template
        self._used: deque[str] = deque()
        # A session writes down what it read of the system catalogs: a copy of the files has it, too.
        psycopg.connect(replace_database(server, template)).close()
        self._connection = psycopg.connect(server, autocommit=True)

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of a new copy; its sessions are ended at the end of the block."""
        name = f"test_{uuid4().hex[:12]}"
        self._copy(name)
        yield replace_database(self._server, name)
        self._connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name]
        )
        self._used.append(name)

    def _copy(self, name: str) -> None:
        while len(self._used) >= KEPT:
            self._connection.execute(f"drop database {self._used.popleft()} with (force)".encode())
        # files are copied in half the time that it takes to write every page to the log
        copying = f"create database {name} template {self._template} strategy file_copy"
        self._connection.execute(copying.encode())
