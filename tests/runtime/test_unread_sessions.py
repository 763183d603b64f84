"""Sessions whose clients do not take their answers: ours are ended after a while, and no others."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from fairlead.db.database import Database
from fairlead.errors import DatabaseRefused
from fairlead.runtime.watchdog import UnreadSessions, Watchdog
from tests.waiting import until

BLOCKED = "select state, wait_event from pg_stat_activity where pid = %s"
# More than fits into a socket, and less than memory has.
LARGE = b"select repeat('x', 20000000)"


@contextmanager
def reading_nothing(url: str, name: str) -> Iterator[int]:
    """A session that was asked for a large answer by a client that takes nothing of it."""
    with closing(psycopg.connect(url, application_name=name, autocommit=True)) as connection:
        connection.pgconn.send_query(LARGE)
        connection.pgconn.flush()
        yield connection.info.backend_pid


async def is_blocked(db: Database, pid: int) -> bool:
    return await db.single(lambda tx: tx.values(BLOCKED, [pid])) == [("active", "ClientWrite")]


async def is_gone(db: Database, pid: int) -> bool:
    return await db.single(lambda tx: tx.values(BLOCKED, [pid])) == []


async def until_blocked(db: Database, pid: int) -> None:
    await until(lambda: is_blocked(db, pid), "the session to wait for its client")


async def test_a_session_whose_answer_is_not_taken_is_ended_at_a_later_look(
    db: Database, database_url: str
) -> None:
    unread = UnreadSessions(db)
    with reading_nothing(database_url, "fairlead") as pid:
        await until_blocked(db, pid)
        for _ in range(3):  # not long enough: it may only be slow
            await unread()
        assert await is_blocked(db, pid)
        unread._seconds = 0.0

        await unread()

        await until(lambda: is_gone(db, pid), "the session to end")


async def test_a_session_of_another_program_is_left_alone(db: Database, database_url: str) -> None:
    unread = UnreadSessions(db)
    unread._seconds = 0.0
    with reading_nothing(database_url, "psql") as pid:
        await until_blocked(db, pid)
        for _ in range(3):
            await unread()
        assert await is_blocked(db, pid)


async def test_leases_are_rescued_although_sessions_cannot_be_ended(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog = Watchdog(db, lease_seconds=30, sweep_seconds=15)
    swept: list[bool] = []

    async def refused() -> None:
        raise DatabaseRefused("permission denied")

    async def sweep() -> int:
        swept.append(True)
        return 0

    monkeypatch.setattr(watchdog, "_unread", refused)
    monkeypatch.setattr(watchdog, "_swept", sweep)

    await watchdog()

    assert swept
