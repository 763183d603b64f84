"""Notifications leave after the commit that they tell of, and are merged while many come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import psycopg
import pytest

from fairlead import Fairlead
from fairlead.db.database import Database
from fairlead.db.notifier import Notifier
from fairlead.db.tx import Tx
from fairlead.errors import JobIdTaken
from fairlead.model.job import NewJob
from tests import given
from tests.given import TENANT
from tests.waiting import SECONDS, eventually

ADA = {"name": "Ada"}


class Line:
    """Sends when it is let to, and remembers what."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.free = asyncio.Event()

    async def __call__(self, word: str) -> None:
        self.sent.append(word)
        await self.free.wait()


async def test_the_first_word_goes_out_at_once_and_the_others_together() -> None:
    line = Line()
    notifier = Notifier(line)
    notifier.tell(["ready"])
    await asyncio.sleep(0)
    assert line.sent == ["ready"]

    for _ in range(100):
        notifier.tell(["ready"])
    line.free.set()

    await eventually(lambda: len(line.sent) == 2, "the second notification")
    await notifier.close()
    assert line.sent == ["ready"] * 2


async def test_a_word_does_not_wait_for_another_one() -> None:
    line = Line()
    notifier = Notifier(line)
    notifier.tell(["ready"])
    notifier.tell(["cancel"])
    await asyncio.sleep(0)
    assert line.sent == ["ready", "cancel"]
    line.free.set()
    await notifier.close()


async def test_a_word_after_a_quiet_gap_goes_out_at_once() -> None:
    line = Line()
    line.free.set()
    notifier = Notifier(line)
    notifier.tell(["ready"])
    await eventually(lambda: notifier.is_quiet, "the end of the gap")
    notifier.tell(["ready"])
    await asyncio.sleep(0)
    assert line.sent == ["ready"] * 2
    await notifier.close()


async def test_a_word_that_is_told_again_is_left_to_the_next_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop of enqueues would else alternate between two connections."""
    monkeypatch.setattr("fairlead.db.notifier.CARRIER_SECONDS", 3600.0)
    line = Line()
    line.free.set()
    notifier = Notifier(line)
    for _ in range(2):
        notifier.tell(["ready"])
    await eventually(lambda: "ready" in notifier._due, "the end of the gap")

    notifier.tell(["ready"])
    await asyncio.sleep(0)

    assert line.sent == ["ready"]
    assert notifier.take("ready")
    await notifier.close()
    assert line.sent == ["ready"]


async def test_closing_sends_what_waits_for_the_end_of_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.db.notifier.SHORTEST_GAP_SECONDS", 600.0)
    line = Line()
    line.free.set()
    notifier = Notifier(line)
    notifier.tell(["ready"])
    await asyncio.sleep(0)
    notifier.tell(["ready"])

    await notifier.close()
    assert line.sent == ["ready"] * 2


async def test_a_notification_that_fails_hurts_nobody() -> None:
    async def fail(word: str) -> None:
        raise psycopg.OperationalError(word)

    notifier = Notifier(fail)
    notifier.tell(["ready"])
    notifier.tell(["ready"])
    await notifier.close()


# In the database


class Silent(Notifier):
    """Keeps what it is told, and sends nothing."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def tell(self, words: Iterable[str]) -> None:
        self.told |= set(words)

    def take(self, word: str) -> bool:
        """Leaves nothing to a statement."""
        self.told.add(word)
        return False

    async def close(self) -> None:
        """Nothing is left to be sent."""


@pytest.fixture
async def silent(fl: Fairlead) -> AsyncIterator[Silent]:
    """What Fairlead would have sent after its commits."""
    real, fl.database.notifier = fl.database.notifier, Silent()
    yield fl.database.notifier
    fl.database.notifier = real


async def _canceled_and_retried(fl: Fairlead) -> None:
    job_id = await given.queued_job(fl)
    await fl.cancel(job_id)
    await fl.retry(job_id)


async def _ended_with_a_trigger(fl: Fairlead) -> None:
    """A job ends whose tenant listens to the ends of jobs."""
    async with fl.transaction() as tx:
        await given.trigger(tx, event_name="job.canceled")
        job_id = await given.queued_job(tx)
    await fl.cancel(job_id)


async def _twice(fl: Fairlead) -> None:
    """The second one takes the short way, since the ids are known."""
    for _ in range(2):
        await fl.enqueue("greet", tenant=TENANT, payload=ADA)


WAYS: dict[str, tuple[Callable[[Fairlead], Awaitable[object]], str]] = {
    "one job": (lambda fl: fl.enqueue("greet", tenant=TENANT, payload=ADA), "ready"),
    "one job again": (_twice, "ready"),
    "one job with options": (lambda fl: fl.enqueue("anything", tenant=TENANT, priority=1), "ready"),
    "one job for later": (lambda fl: fl.enqueue("anything", tenant=TENANT, delay=3600), "later"),
    "many jobs": (lambda fl: fl.enqueue_many([NewJob(definition="anything", tenant=TENANT)]), "ready"),
    "a retry": (_canceled_and_retried, "ready"),
    "an event": (lambda fl: fl.emit("order.placed", tenant=TENANT), "event"),
    "the end of a job": (_ended_with_a_trigger, "event"),
    "a gate": (lambda fl: fl.pause(tenant=TENANT), "gate"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_transaction_of_ours_has_a_notification_in_it(
    way: str, fl: Fairlead, silent: Silent, database_url: str
) -> None:
    act, word = WAYS[way]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener:
        await listener.execute("listen fairlead")

        await act(fl)

        assert word in silent.told
        assert await _heard(listener) == []


async def _heard(listener: psycopg.AsyncConnection[tuple[object, ...]]) -> list[str]:
    """What has been sent since: notifications arrive in the order of the commits."""
    await listener.execute("notify fairlead, 'sentinel'")
    heard: list[str] = []
    async with asyncio.timeout(SECONDS):
        async for notice in listener.notifies():
            if notice.payload == "sentinel":
                return heard
            heard.append(notice.payload)
    raise AssertionError("the listener was closed")


async def test_the_first_notification_follows_its_enqueue_at_once(
    fl: Fairlead, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same message to the server: `send` has nothing to do."""
    sent: list[str] = []

    async def send(word: str) -> None:
        sent.append(word)

    monkeypatch.setattr(fl.database.notifier, "_send", send)
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener:
        await fl.enqueue("greet", tenant=TENANT, payload=ADA)  # the definition is known now
        await eventually(lambda: fl.database.notifier.is_quiet, "a quiet notifier")
        await listener.execute("listen fairlead")
        sent.clear()

        await fl.enqueue("greet", tenant=TENANT, payload=ADA)
        await eventually(lambda: fl.database.notifier.is_quiet, "a quiet notifier")

        assert await _heard(listener) == ["ready"]
        assert sent == []


async def test_an_enqueue_that_fails_keeps_its_connection_and_the_notifier_going(fl: Fairlead) -> None:
    job = await fl.enqueue("greet", tenant=TENANT, payload=ADA)
    await eventually(lambda: fl.database.notifier.is_quiet, "a quiet notifier")
    with pytest.raises(JobIdTaken):
        await fl.submit(NewJob(id=job.id, definition="greet", tenant=TENANT, payload=ADA))

    await eventually(lambda: fl.database.notifier.is_quiet, "a quiet notifier")
    assert (await (await fl.enqueue("greet", tenant=TENANT, payload=ADA)).read()).status == "queued"


async def test_what_is_rolled_back_notifies_nobody(fl: Fairlead, silent: Silent) -> None:
    async def enqueue_and_fail(tx: Tx) -> None:
        await given.queued_job(tx)
        raise KeyError

    with pytest.raises(KeyError):
        await fl.database.transact(enqueue_and_fail)
    assert silent.told == set()


async def test_a_database_that_closes_has_sent_its_notifications(database_url: str, fl: Fairlead) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener:
        await listener.execute("listen fairlead")
        async with Database(database_url, fl.settings) as short_lived, short_lived.transaction() as tx:
            await given.queued_job(tx)
        assert await _heard(listener) == ["ready"]


@pytest.mark.parametrize(("setting", "heard"), [("on", ["ready", "event"]), ("off", [])])
async def test_a_caller_of_the_sql_functions_can_do_without_notifications(
    setting: str, heard: list[str], fl: Fairlead, database_url: str
) -> None:
    async with (
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as listener,
        await psycopg.AsyncConnection.connect(database_url) as caller,
    ):
        await listener.execute("listen fairlead")
        await caller.execute("select set_config('fairlead.notify', %s, true)", [setting])
        await fl.enqueue("greet", tenant=TENANT, payload=ADA, tx=caller)
        await caller.execute("""select fairlead.enqueue('acme', 'greet', '{"name": "x"}')""")
        await fl.emit("order.placed", tenant=TENANT, tx=caller)
        await caller.commit()
        assert await _heard(listener) == heard
