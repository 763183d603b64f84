"""Answers that nobody reads: the session of a process that was stopped while a large answer was on its way to it.

PostgreSQL has no limit for that on a local socket: the statement does not end, and what it has locked stays locked. On
TCP connections `tcp_user_timeout` ends it, after 25 seconds.
"""

import asyncio
from functools import partial

import structlog

from fairlead.db.session import idle_seconds
from fairlead.db.tx import Database
from fairlead.store import sessions
from fairlead.store.sessions import Writing

log = structlog.get_logger(__name__)


class Unread:
    """Ends sessions of ours whose clients have taken nothing for as long as a transaction may be idle."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seconds = idle_seconds(database.settings)
        self._since: dict[Writing, float] = {}

    async def __call__(self) -> None:
        """One look. A session that waits with the same answer at each look for so long is ended."""
        now = asyncio.get_running_loop().time()
        found = await self._database.single(sessions.writing)
        self._since = {one: self._since.get(one, now) for one in found}
        for one, since in self._since.items():
            if now - since >= self._seconds and await self._database.single(
                partial(sessions.end_writing, one=one)
            ):
                log.warning(
                    "unread_session_ended",
                    pid=one.pid,
                    why="its process took no answer, and held what others wait for",
                )
