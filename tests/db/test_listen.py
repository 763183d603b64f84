import asyncio

import psycopg

from fairlead import Fairlead
from fairlead.db.listen import POLL, Listener, check_round_trip
from tests.given import TENANT
from tests.waiting import SECONDS


class Heard:
    """What a subscriber was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.payloads: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, payload: str) -> None:
        self.payloads.put_nowait(payload)

    async def next(self) -> str:
        async with asyncio.timeout(SECONDS):
            return await self.payloads.get()


async def test_an_enqueue_wakes_every_subscriber_through_one_connection(
    fl: Fairlead, database_url: str
) -> None:
    one, two = Heard(), Heard()
    async with Listener(database_url, "fairlead") as listener:
        with listener.subscribe(one), listener.subscribe(two):
            assert (await one.next(), await two.next()) == (POLL, POLL)
            await fl.enqueue("anything", tenant=TENANT)
            assert (await one.next(), await two.next()) == ("ready", "ready")
            with psycopg.connect(database_url) as other:
                [listening] = other.execute(
                    "select count(*) from pg_stat_activity where application_name = 'fairlead listen'"
                    " and datname = current_database()"
                )
                assert listening == (1,)


async def test_a_lost_connection_is_made_anew_and_followed_by_a_poll(fl: Fairlead, database_url: str) -> None:
    heard = Heard()
    async with Listener(database_url, "fairlead") as listener:
        with listener.subscribe(heard):
            assert await heard.next() == POLL
            for _ in range(3):
                with psycopg.connect(database_url, autocommit=True) as other:
                    other.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'fairlead listen'"
                    )
                while await heard.next() != POLL:
                    pass  # the enqueue before was told twice: the definition had to be asked for first
                await fl.enqueue("anything", tenant=TENANT)
                assert await heard.next() == "ready"


async def test_a_subscriber_that_left_hears_nothing_more(fl: Fairlead, database_url: str) -> None:
    gone, there = Heard(), Heard()
    async with Listener(database_url, "fairlead") as listener:
        with listener.subscribe(there):
            with listener.subscribe(gone):
                assert await gone.next() == POLL
            await there.next()
            await fl.enqueue("anything", tenant=TENANT)
            assert await there.next() == "ready"
            assert gone.payloads.empty()


async def test_the_round_trip_says_whether_notifications_arrive(database_url: str) -> None:
    assert await check_round_trip(database_url, "fairlead", seconds=SECONDS)
    assert not await check_round_trip("postgresql://127.0.0.1:1/none", "fairlead", seconds=0.2)
