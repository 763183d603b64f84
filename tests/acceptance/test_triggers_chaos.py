"""Schedulers that are killed and stopped at random: no instant and no event is lost, and none counts twice.

`make test` does it for some seconds, `make chaos` for two minutes.
"""

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Settings
from fairlead.db.database import Database
from fairlead.model.trigger import Trigger
from tests import given
from tests.acceptance.fleet import WorkerUnderTest, running
from tests.processes import FAIRLEAD, until

pytestmark = pytest.mark.thorough

SECONDS = float(os.environ.get("CHAOS_SECONDS", "6"))
EVENTS = int(os.environ.get("CHAOS_EVENTS", "150"))
# What is killed when; the rest is up to the machine.
SEED = int(os.environ.get("CHAOS_SEED", "5"))
SCHEDULERS = 3
PRODUCERS = 8
# More than a scheduler that is stopped in the middle of a round is waited for, and as long as not.
STOPPED_SECONDS = (0.2, 7.0)


class Place:
    """A database, and a look into it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def rows(self, query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, params)
            return cursor.fetchall() if cursor.description else []

    def firings(self, trigger: Trigger) -> list[tuple[Any, ...]]:
        return self.rows(
            "select scheduled_at, event_id, outcome, job_id, reason from fairlead.trigger_firings "
            "where trigger_id = %s order by scheduled_at, event_id",
            trigger.id,
        )

    def jobs(self, trigger: Trigger) -> set[Any]:
        """The jobs that this trigger made."""
        return {
            job_id
            for (job_id,) in self.rows(
                "select id from fairlead.jobs where created_by = %s", f"trigger:{trigger.id}"
            )
        }

    def scheduler(self) -> contextlib.AbstractContextManager[WorkerUnderTest]:
        env = {"FAIRLEAD_DATABASE_URL": self.url, "FAIRLEAD_POLL_SECONDS": "0.2"}
        return running([FAIRLEAD, "scheduler"], env, says="firing schedules")


@pytest.fixture
def place(database_url: str) -> Place:
    return Place(database_url)


async def made(place: Place, *documents: dict[str, Any]) -> list[Trigger]:
    async with Database(place.url, Settings()) as database, database.transaction() as tx:
        return [await given.trigger(tx, **document) for document in documents]


async def consistent(place: Place) -> None:
    async with Database(place.url, Settings()) as database:
        await given.no_inconsistencies(database)


class Chaos:
    """Schedulers, one of which is killed or stopped at any moment; a new one takes the place of a dead one."""

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._chance = random.Random(seed)  # noqa: S311
        self._over = threading.Event()
        self.deeds: Counter[str] = Counter()

    @contextlib.contextmanager
    def reigning(self) -> Iterator[None]:
        """While the block lasts; then all that are left go on in peace until the end of the test."""
        with ThreadPoolExecutor(SCHEDULERS) as threads:
            seeds = [self._chance.random() for _ in range(SCHEDULERS)]
            reigns = [threads.submit(self._reign, random.Random(seed)) for seed in seeds]  # noqa: S311
            try:
                yield
                # on a busy machine no scheduler may have got as far as that yet
                until(lambda: self.deeds["killed"] and self.deeds["stopped"], "one to be killed, one stopped")
            finally:
                self._over.set()
                for reign in reigns:
                    reign.result()

    def _reign(self, chance: random.Random) -> None:
        while not self._over.is_set():
            with self._place.scheduler() as one:
                while not self._over.wait(chance.uniform(0.1, 1.5)):
                    if chance.random() < 0.4:
                        self.deeds["killed"] += 1
                        one.kill()
                        break
                    self.deeds["stopped"] += 1
                    one.signal(signal.SIGSTOP)
                    self._over.wait(chance.uniform(*STOPPED_SECONDS))
                    one.signal(signal.SIGCONT)


@pytest.fixture
def chaos(place: Place) -> Chaos:
    return Chaos(place, SEED)


# Schedules


async def test_every_second_has_one_record_and_one_job_whoever_dies(place: Place, chaos: Chaos) -> None:
    # far away until all of them are there
    every: dict[str, Any] = {"every_seconds": 1, "start_at": datetime.now(UTC) + timedelta(seconds=3600)}
    caught_up = [every | {"label": f"all {n}", "catch_up": "all", "overlap": "allow"} for n in range(6)]
    triggers = await made(
        place,
        *caught_up,
        every | {"label": "overlapping", "catch_up": "all"},
        every | {"label": "latest", "catch_up": "one", "overlap": "allow"},
        every | {"label": "skipping", "catch_up": "skip", "overlap": "allow"},
    )
    [(start,), *_] = place.rows(
        "update fairlead.job_triggers set start_at = date_trunc('second', now()), next_fire_at = date_trunc('second', now()) "
        "returning start_at"
    )
    with chaos.reigning():
        await asyncio.sleep(SECONDS)
    last = datetime.now(UTC).replace(microsecond=0)
    with place.scheduler():
        late: LiteralString = "select label from fairlead.job_triggers where next_fire_at <= %s"
        until(lambda: not place.rows(late, last), "the schedules to be seen to")
    expected = [start + timedelta(seconds=n) for n in range(int((last - start).total_seconds()) + 1)]

    assert len(expected) > SECONDS - 2
    assert chaos.deeds["killed"]
    assert chaos.deeds["stopped"]
    for trigger in triggers:
        seen = place.firings(trigger)
        assert [at for at, *_ in seen][: len(expected)] == expected, trigger.label
        made_jobs = [job_id for _, _, outcome, job_id, _ in seen if outcome == "enqueued"]
        assert len(set(made_jobs)) == len(made_jobs), trigger.label
        assert set(made_jobs) == place.jobs(trigger), trigger.label
        said = Counter((outcome, reason) for _, _, outcome, _, reason in seen)
        match trigger.label:
            case "overlapping":  # nobody runs the first
                assert said == {("enqueued", None): 1, ("skipped", "overlap"): len(seen) - 1}
            case "latest":
                assert said.keys() <= {("enqueued", None), ("skipped", "overtaken")}
            case "skipping":
                assert said.keys() <= {("enqueued", None), ("skipped", "overtaken"), ("skipped", "missed")}
            case _:
                assert said == {("enqueued", None): len(seen)}
    await consistent(place)


# Events


class Producer:
    """Emits in transactions of its own: some fail, and some commit long after others that began later."""

    def __init__(self, url: str, chance: random.Random, count: int, seconds: float) -> None:
        self._url = url
        self._chance = chance
        self._count = count
        self._pause = seconds / count
        self.committed: dict[Any, int] = {}
        self.rolled_back: list[Any] = []
        self.late = 0

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            free = [stack.enter_context(psycopg.connect(self._url)) for _ in range(4)]
            held: list[tuple[Any, dict[Any, int], float]] = []
            for number in range(self._count):
                connection = free.pop()
                self._one(connection, number, free, held)
                time.sleep(self._pause * self._chance.uniform(0, 2))
                for one in [one for one in held if one[2] < time.monotonic() or not free]:
                    held.remove(one)
                    one[0].commit()
                    self.committed |= one[1]
                    free.append(one[0])
            for connection, events, _ in held:
                connection.commit()
                self.committed |= events

    def _one(self, connection: Any, number: int, free: list[Any], held: list[Any]) -> None:
        query = "select fairlead.emit('acme', 'chaos', %s)"
        [event_id] = connection.execute(query, [Jsonb({"n": number})]).fetchone()
        fate = self._chance.random()
        if fate < 0.15:
            connection.rollback()
            self.rolled_back.append(event_id)
            free.append(connection)
        elif fate < 0.35:
            self.late += 1
            held.append((connection, {event_id: number}, time.monotonic() + self._chance.uniform(0.1, 3)))
        else:
            connection.commit()
            self.committed[event_id] = number
            free.append(connection)


async def test_every_committed_event_has_one_record_of_each_trigger_whoever_dies(
    place: Place, chaos: Chaos
) -> None:
    kinds = 40
    each, few, windowed, failing = await made(
        place,
        {"label": "each", "event_name": "chaos", "dedupe_window_seconds": 0},
        {"label": "few", "event_name": "chaos", "filter": {"n": {"lt": 50}}, "dedupe_window_seconds": 0},
        {
            "label": "windowed",
            "event_name": "chaos",
            "filter": {"n": {"lt": kinds}},
            "payload_template": {"n": "{{event.n}}"},
            "dedupe_window_seconds": 3600,
        },
        {"label": "failing", "event_name": "chaos", "payload_template": {"n": "{{event.nothing}}"}},
    )
    chances = [random.Random(SEED + n) for n in range(PRODUCERS)]  # noqa: S311
    producers = [Producer(place.url, chance, EVENTS // PRODUCERS, SECONDS) for chance in chances]
    with chaos.reigning(), ThreadPoolExecutor(PRODUCERS) as threads:
        for running in [threads.submit(producer.run) for producer in producers]:
            running.result()
    with place.scheduler():
        until(lambda: not place.rows("select 1 from fairlead.events_waiting"), "the events to be dispatched")
    committed = {event_id: n for producer in producers for event_id, n in producer.committed.items()}

    assert len(committed) > EVENTS * 0.7
    assert all(producer.late and producer.rolled_back for producer in producers)
    assert chaos.deeds["killed"]
    wanted = [
        (each, set(committed)),
        (few, {event_id for event_id, n in committed.items() if n < 50}),
        (windowed, {event_id for event_id, n in committed.items() if n < kinds}),
        (failing, set(committed)),
    ]
    for trigger, events in wanted:
        seen = place.firings(trigger)
        assert Counter(event_id for _, event_id, *_ in seen) == Counter(events), trigger.label
        made_jobs = [job_id for _, _, outcome, job_id, _ in seen if outcome == "enqueued"]
        assert len(made_jobs) == len(set(made_jobs))
        assert set(made_jobs) == place.jobs(trigger), trigger.label
        said = Counter((outcome, reason) for _, _, outcome, _, reason in seen)
        match trigger.label:
            case "windowed":
                kinds_seen = len({n for n in committed.values() if n < kinds})
                assert said == {
                    ("enqueued", None): kinds_seen,
                    ("deduplicated", None): len(seen) - kinds_seen,
                }
                assert {job_id for _, _, _, job_id, _ in seen} == set(made_jobs)
            case "failing":
                assert said == {("failed", "template_failed"): len(seen)}
            case _:
                assert said == {("enqueued", None): len(seen)}
    await consistent(place)
