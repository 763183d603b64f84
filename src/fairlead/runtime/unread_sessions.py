"""Ends database sessions whose client stopped reading: a process that was stopped while it received a large result.

PostgreSQL has no timeout for that on a local socket: the statement does not end, and its locks stay. On TCP
connections `tcp_user_timeout` ends it after 25 seconds.
"""

import asyncio
from functools import partial

import structlog

from fairlead.db.session import idle_seconds
from fairlead.db.tx import Database
from fairlead.store import sessions
from fairlead.store.sessions import StuckSession

log = structlog.get_logger(__name__)


class UnreadSessions:
    """Ends Fairlead's sessions whose clients have read nothing for as long as a transaction may be idle."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seconds = idle_seconds(database.settings)
        self._since: dict[StuckSession, float] = {}

    async def __call__(self) -> None:
        """Check once. Ends each session that has been blocked on the same result for that long."""
        now = asyncio.get_running_loop().time()
        found = await self._database.single(sessions.list_stuck)
        self._since = {one: self._since.get(one, now) for one in found}
        for one, since in self._since.items():
            if now - since >= self._seconds and await self._database.single(
                partial(sessions.end_if_stuck, one=one)
            ):
                log.warning(
                    "unread_session_ended",
                    pid=one.pid,
                    why="its process did not read the result, and its locks block others",
                )
