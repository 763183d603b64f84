"""What attempts say: kept in chunks, bounded, read in order, removed with their jobs."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.actions import access
from fairlead.model.log import LAST_SEQ
from fairlead.store import logs, retention
from tests import given
from tests.acting import act
from tests.processes import run
from tests.server.test_worker_api import claimed, enqueued, tell
from tests.server.world import World, world_on
from tests.tables import each_case
from tests.waiting import SECONDS


async def read(world: World, job_id: Any, **params: Any) -> Any:
    answer = await world.call("GET", f"/jobs/{job_id}/logs", who="viewer", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(page: Any) -> list[str]:
    return [one["text"] for one in page["items"]]


async def say(world: World, item: dict[str, Any], *said: str, start: int = 0, **more: Any) -> Any:
    chunks = [{"seq": start + n, "text": text, **more} for n, text in enumerate(said)]
    answer = await tell(world, item, "logs", chunks=chunks)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_chunks_are_read_in_order_and_followed_to_the_end(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    assert await read(world, job_id) == {"items": [], "next_cursor": "0.-1", "complete": False}

    assert await say(world, item, "b", "c", start=1) == {"kept": 2, "truncated": False}
    assert await say(world, item, "a", start=0, stream="stderr") == {"kept": 1, "truncated": False}
    first = await read(world, job_id)
    assert [(one["attempt_no"], one["seq"], one["stream"], one["text"]) for one in first["items"]] == [
        (1, 0, "stderr", "a"),
        (1, 1, "stdout", "b"),
        (1, 2, "stdout", "c"),
    ]
    assert (first["next_cursor"], first["complete"]) == ("1.2", False)
    assert await read(world, job_id, cursor="1.2") == {"items": [], "next_cursor": "1.2", "complete": False}
    await say(world, item, "d", start=3)
    await tell(world, item, "complete", stdout_tail="only shown where there are no chunks")

    rest = await read(world, job_id, cursor="1.2")
    assert (texts(rest), rest["next_cursor"], rest["complete"]) == (["d"], None, True)
    assert texts(await read(world, job_id, attempt_no=1, after_seq=1)) == ["c", "d"]
    page = await read(world, job_id, limit=3)
    assert (texts(page), page["next_cursor"], page["complete"]) == (["a", "b", "c"], "1.2", False)


async def test_a_chunk_that_is_sent_again_is_kept_once(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    await say(world, item, "a", "b")

    assert await say(world, item, "A", "B", "C") == {"kept": 1, "truncated": False}
    assert texts(await read(world, job_id)) == ["a", "b", "C"]


async def test_each_attempt_has_its_own_log_and_one_of_them_may_be_asked_for(world: World) -> None:
    job_id = await enqueued(world)
    for text in ("first", "second"):
        item = await claimed(world)
        await say(world, item, text)
        await tell(world, item, "release")

    assert texts(await read(world, job_id)) == ["first", "second"]
    one = await read(world, job_id, attempt_no=1)
    assert (texts(one), one["complete"]) == (["first"], True)
    assert (await read(world, job_id))["complete"] is False  # it will be run again


async def test_an_attempt_that_kept_only_its_tails_shows_those(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    await tell(world, item, "complete", stdout_tail="out", stderr_tail="err")

    page = await read(world, job_id)
    assert [(one["seq"], one["stream"], one["text"]) for one in page["items"]] == [
        (1, "stdout", "out"),
        (2, "stderr", "err"),
    ]
    assert page["complete"] is True
    assert texts(await read(world, job_id, attempt_no=1, after_seq=1)) == ["err"]


async def test_an_attempt_that_says_too_much_is_cut_with_one_mark(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    line = "x" * 60_000

    answers = [await say(world, item, *[line] * 6, start=6 * n) for n in range(5)]

    assert [one["truncated"] for one in answers] == [False, False, True, True, True]
    assert sum(one["kept"] for one in answers) == 1_048_576 // 60_000
    chunks = await given.log_chunks(world)
    assert sum(len(text) for _, text in chunks) <= 1_048_576 + 200
    assert [seq for seq, _ in chunks].count(LAST_SEQ) == 1
    await tell(world, item, "complete")
    said: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(10):
        page = await read(world, job_id, **cursor)
        said += texts(page)
        if page["complete"]:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(said) == 18
    assert "was not stored" in said[-1]


async def test_a_million_small_chunks_are_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_CHUNKS", 5)
    await enqueued(world)
    item = await claimed(world)

    assert await say(world, item, *"abcdefg") == {"kept": 5, "truncated": True}


async def test_a_page_is_bounded_in_bytes_too(world: World) -> None:
    job_id = await enqueued(world)
    for _ in range(2):
        item = await claimed(world)
        await say(world, item, *["x" * 60_000] * 17)
        await tell(world, item, "release")
    page = await read(world, job_id)

    assert 0 < sum(len(text) for text in texts(page)) <= 1_048_576 + 60_000
    rest = await read(world, job_id, cursor=page["next_cursor"])
    assert len(page["items"]) + len(rest["items"]) == 34


@each_case(
    ("params", "path"),
    [
        ({"attempt_no": 0}, "attempt_no"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"after_seq": 3}, "attempt_no"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "1.99999999999"}, "cursor"),
        ({"cursor": "1.1", "after_seq": 1, "attempt_no": 1}, "after_seq"),
        ({"from": 1}, "from"),
        ({"follow": "perhaps"}, "follow"),
        ({"follow": "true", "wait": 31}, "wait"),
    ],
)
async def test_a_page_that_makes_no_sense_is_refused(
    shared_world: World, params: dict[str, Any], path: str
) -> None:
    job_id = await enqueued(shared_world)

    answer = await shared_world.call("GET", f"/jobs/{job_id}/logs", who="viewer", params=params)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    assert [one["path"] for one in answer.json()["errors"]] == [path]


async def test_a_follower_is_answered_as_soon_as_something_is_said(world: World) -> None:
    job_id = await enqueued(world)
    following = asyncio.create_task(read(world, job_id, follow="true", wait=30))
    item = await claimed(world)
    asked = {"cursor": "1.0", "follow": ""}  # as in ?follow
    await say(world, item, "one\n")
    page = await asyncio.wait_for(following, SECONDS)
    assert (texts(page), page["next_cursor"], page["complete"]) == (["one\n"], "1.0", False)

    following = asyncio.create_task(read(world, job_id, **asked))
    await asyncio.wait({following}, timeout=0.05)
    assert not following.done()  # nothing was said since
    await say(world, item, "two\n", start=1)
    assert texts(await asyncio.wait_for(following, SECONDS)) == ["two\n"]


async def test_a_follower_is_answered_when_the_job_is_over(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    following = asyncio.create_task(read(world, job_id, follow="true"))
    await tell(world, item, "complete")

    page = await asyncio.wait_for(following, SECONDS)
    assert page == {"items": [], "next_cursor": None, "complete": True}


async def test_a_follower_of_a_silent_job_is_answered_when_he_has_waited_long_enough(world: World) -> None:
    job_id = await enqueued(world)

    page = await asyncio.wait_for(read(world, job_id, follow="true", wait=0.3), SECONDS)

    assert page == {"items": [], "next_cursor": "0.-1", "complete": False}


async def test_a_follower_whose_token_is_revoked_meanwhile_is_told_nothing(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    following = asyncio.create_task(
        world.call("GET", f"/jobs/{job_id}/logs", who="viewer", params={"follow": "true"})
    )
    await asyncio.wait({following}, timeout=0.05)
    await act(world.fl, access.revoke_secret, given.TESTER, world.secrets[given.TENANT, "viewer"])
    world.app.state.gatekeeper.forget()
    await say(world, item, "secret")

    assert (await asyncio.wait_for(following, SECONDS)).status_code == 401


async def test_escape_sequences_are_kept_and_left_out_if_somebody_asks_for_that(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    await say(world, item, "\x1b[31mred\x1b[0m \x1b[3", "1mand more\x1b[0m")

    assert texts(await read(world, job_id)) == ["\x1b[31mred\x1b[0m \x1b[3", "1mand more\x1b[0m"]
    assert texts(await read(world, job_id, strip_ansi="true")) == ["red ", "and more"]


async def test_a_log_goes_with_its_job(world: World) -> None:
    kept, gone = await enqueued(world), await enqueued(world)
    for _ in range(2):
        item = await claimed(world)
        await say(world, item, "hello")
        await tell(world, item, "complete")
    async with world.fl.transaction() as tx:
        await given.age_job(tx, gone, days=60)
        assert (await retention.remove(tx, days=30)).removed == 1
        assert await given.log_chunks(tx) == await given.log_chunks(tx, kept)


async def test_the_command_line_prints_a_log_and_follows_it(database_url: str) -> None:
    async with world_on(database_url) as world:
        job_id = await enqueued(world)
        item = await claimed(world)
        await say(world, item, "one\n", "two\n")
        env = {"FAIRLEAD_DATABASE_URL": database_url}
        following = asyncio.create_task(
            asyncio.to_thread(run, "jobs", "logs", str(job_id), "--follow", env=env)
        )
        shown = await asyncio.to_thread(run, "jobs", "logs", str(job_id), env=env)
        assert shown.stdout == "one\ntwo\n"
        await say(world, item, "three\n", start=2)
        await tell(world, item, "complete")

        assert (await following).stdout == "one\ntwo\nthree\n"
        as_json = await asyncio.to_thread(
            run, "jobs", "logs", str(job_id), "--json", "--attempt", "1", env=env
        )
        assert [json.loads(line)["text"] for line in as_json.stdout.splitlines()] == [
            "one\n",
            "two\n",
            "three\n",
        ]
