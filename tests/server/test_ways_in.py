"""Whichever way a job is enqueued, every option and every limit holds, or is refused with a code.

docs/reference/ways-in.md shows the table; `test_the_docs_show_this_table` compares them.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Debounce, Fairlead
from fairlead.actions import definitions, dispatch, encryption, tenants, triggers, workflows
from fairlead.actions.workflows import RunRequest
from fairlead.errors import FairleadError
from fairlead.model.job import Job, JobStatus
from fairlead.model.request import parse_request
from fairlead.model.trigger import FiringOutcome
from tests import given
from tests.acting import act
from tests.cli.test_commands import Shell
from tests.databases import find_in_database
from tests.given import TENANT, TESTER
from tests.server.world import World, world_on
from tests.thorough import mostly_thorough

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "ways-in.md"
VALUE = "sk-live-0123456789-canary"


class Refused(Exception):
    """The way refuses the job with this code; nothing was enqueued."""


@dataclass
class Door:
    """A server, a library and a command line on one database."""

    world: World
    maker: Fairlead
    shell: Shell
    folder: Path
    # of the fact that is being tried
    definition: str = ""
    # what the next handler enqueues, and the refusals of what it did
    asked: tuple[Any, dict[str, Any]] = (None, {})
    refused: list[str] = field(default_factory=list)

    @property
    def fl(self) -> Fairlead:
        return self.world.fl


Options = Mapping[str, Any]
Way = Callable[[Door, Any, Options], Awaitable[None]]


@pytest.fixture
async def door(database_url: str, tmp_path: Path) -> AsyncIterator[Door]:
    key = tmp_path / "master.key"
    key.write_text(base64.b64encode(b"k" * 32).decode())
    async with world_on(database_url, encryption_key=f"file:{key}") as world:
        maker = Fairlead(settings=world.fl.settings, actor="tester")
        shell = Shell(database_url)
        shell.env["FAIRLEAD_ENCRYPTION_KEY"] = f"file:{key}"
        made = Door(world, maker, shell, tmp_path)

        @maker.job(key="enqueuer")
        async def enqueue(ctx: Any) -> None:
            payload, options = made.asked
            with noted(made):
                await ctx.enqueue(made.definition, payload=payload, **options)

        @maker.job(key="caller", durable=True)
        async def call(ctx: Any) -> None:
            payload, options = made.asked
            with noted(made):
                await ctx.call(made.definition, payload, **options)

        async with maker:
            yield made


@contextmanager
def noted(door: Door) -> Iterator[None]:
    try:
        yield
    except FairleadError as error:
        door.refused.append(error.code)


# The ways


async def single(door: Door, payload: Any, options: Options) -> None:
    await door.fl.submit(_new(door, payload, options))


async def many(door: Door, payload: Any, options: Options) -> None:
    await door.fl.enqueue_many([_new(door, payload, options)])


async def joined(door: Door, payload: Any, options: Options) -> None:
    async with await psycopg.AsyncConnection.connect(str(door.fl.settings.database_url)) as connection:
        await door.fl.submit(_new(door, payload, options), tx=connection)


async def joined_many(door: Door, payload: Any, options: Options) -> None:
    async with await psycopg.AsyncConnection.connect(str(door.fl.settings.database_url)) as connection:
        await door.fl.enqueue_many([_new(door, payload, options)], tx=connection)


async def plain_sql(door: Door, payload: Any, options: Options) -> None:
    values: dict[str, Any] = dict(options)
    for name in ("expires_in", "unique_for"):
        if name in values:
            values[name] = timedelta(seconds=values[name])
    if "debounce" in values:
        values["debounce"] = Jsonb(values["debounce"])
    named = "".join(f", {name} => %({name})s" for name in values)
    async with await psycopg.AsyncConnection.connect(str(door.fl.settings.database_url)) as connection:
        try:
            await connection.execute(
                f"select fairlead.enqueue(%(tenant)s, %(definition)s, %(payload)s{named})".encode(),
                {"tenant": TENANT, "definition": door.definition, "payload": Jsonb(payload), **values},
            )
        except psycopg.Error as error:
            raise Refused(error.diag.message_detail) from error


async def post(door: Door, payload: Any, options: Options) -> None:
    await _post(door, "/jobs", {"definition_key": door.definition, "payload": payload, **options})


async def post_bulk(door: Door, payload: Any, options: Options) -> None:
    await _post(
        door, "/jobs/bulk", {"jobs": [{"definition_key": door.definition, "payload": payload, **options}]}
    )


async def command(door: Door, payload: Any, options: Options) -> None:
    words = [door.definition, json.dumps(payload), "--tenant", TENANT]
    for name, value in options.items():
        if name == "tags":
            words += ["--tag", *value]
        elif name == "debounce":
            words += ["--debounce", f"{value['key']}:{value['seconds']}s"]
        else:
            words += [f"--{name.replace('_', '-')}", f"{value}s" if isinstance(value, int) else value]
    await _run(door, words)


async def file(door: Door, payload: Any, options: Options) -> None:
    lines = door.folder / "jobs.jsonl"
    lines.write_text(json.dumps({"definition": door.definition, "payload": payload, **options}))
    await _run(door, ["--file", str(lines), "--tenant", TENANT])


async def child(door: Door, payload: Any, options: Options) -> None:
    await _run_maker(door, "enqueuer", payload, options)


async def durable_child(door: Door, payload: Any, options: Options) -> None:
    await _run_maker(door, "caller", payload, options)


async def event(door: Door, payload: Any, options: Options) -> None:
    async with door.fl.transaction() as tx:
        made = await _trigger(door, tx, payload, options)
        await given.event(tx)
    await door.fl.database.transact(lambda tx: dispatch.dispatch(tx, door.fl.catalog, limit=10))
    await _check_firing(door, made)


async def schedule(door: Door, payload: Any, options: Options) -> None:
    async with door.fl.transaction() as tx:
        made = await _trigger(door, tx, payload, options, every_seconds=3600)
    await act(door.fl, triggers.fire_now, TESTER, door.fl.catalog, made.id)
    await _check_firing(door, made)


async def step(door: Door, payload: Any, options: Options) -> None:
    fields = {
        "expires_in_seconds" if name == "expires_in" else name: value for name, value in options.items()
    }
    one = {"name": "one", "definition": door.definition, "payload": payload, **fields}
    async with door.fl.transaction() as tx:
        run = await workflows.start_inline(
            tx, TESTER, {"key": "w", "steps": [one]}, RunRequest(tenant=TENANT)
        )
    [state] = (await door.fl.read_run(run.id)).steps
    if state.error is not None:
        raise Refused(state.error["code"])


def _new(door: Door, payload: Any, options: Options) -> Any:
    return parse_request({"definition": door.definition, "tenant": TENANT, "payload": payload, **options})


async def _post(door: Door, path: str, body: Any) -> None:
    answer = await door.world.call("POST", path, json=body)
    if answer.status_code >= 300:
        raise Refused(answer.json()["code"])


async def _run(door: Door, words: list[str]) -> None:
    result = await asyncio.to_thread(door.shell, "jobs", "enqueue", *words, "--json")
    if result.exit_code:
        raise Refused(json.loads(result.stderr)["code"])


async def _run_maker(door: Door, key: str, payload: Any, options: Options) -> None:
    given_options = dict(options)
    if "debounce" in options:
        given_options["debounce"] = Debounce(**options["debounce"])
    door.asked = (payload, given_options)
    door.refused.clear()
    await door.maker.enqueue(key, tenant=TENANT, priority=-5)
    await door.maker.tick()
    if door.refused:
        raise Refused(door.refused[0])


async def _trigger(door: Door, tx: Any, payload: Any, options: Options, **more: Any) -> Any:
    return await given.trigger(
        tx, definition_key=door.definition, payload_template=payload, job_options=options or None, **more
    )


async def _check_firing(door: Door, made: Any) -> None:
    async with door.fl.transaction() as tx:
        [fired] = await triggers.list_firings(tx, TESTER, made.id)
        await triggers.remove(tx, TESTER, made.id)
    if fired.outcome is FiringOutcome.FAILED:
        raise Refused(fired.reason)


WAYS: dict[str, Way] = {
    "`fl.enqueue`": single,
    "`fl.enqueue_many`": many,
    "`fl.enqueue` in your transaction": joined,
    "`fl.enqueue_many` in your transaction": joined_many,
    "`fairlead.enqueue` in SQL": plain_sql,
    "`POST /jobs`": post,
    "`POST /jobs/bulk`": post_bulk,
    "`fairlead jobs enqueue`": command,
    "`fairlead jobs enqueue --file`": file,
    "`ctx.enqueue`": child,
    "`ctx.call`": durable_child,
    "trigger of events": event,
    "schedule": schedule,
    "step of a workflow": step,
}


# What holds in every way


async def drop_new(door: Door, way: Way) -> str | None:
    await _limit(door, "drop_new")
    running = await _claimed(door)
    await way(door, {"name": "Ada"}, {})
    jobs = await _jobs(door)
    if way is step:
        assert [job.status for job in jobs] == [JobStatus.RUNNING, JobStatus.QUEUED]
        return "waits: a step is never dropped"
    assert [job.id for job in jobs] == [running]
    return None


async def replace_queued(door: Door, way: Way) -> str | None:
    await _limit(door, "replace_queued")
    await _claimed(door)
    waiting = await given.queued_job(door.fl, definition=door.definition)
    await way(door, {"name": "Ada"}, {})
    jobs = await _jobs(door)
    assert [job.status for job in jobs] == [JobStatus.RUNNING, JobStatus.CANCELED, JobStatus.QUEUED]
    assert jobs[1].id == waiting
    return None


async def cancel_running(door: Door, way: Way) -> str | None:
    await _limit(door, "cancel_running")
    await _claimed(door)
    await way(door, {"name": "Ada"}, {})
    running, new = await _jobs(door)
    assert running.cancel_requested_at is not None
    assert (new.status, new.cancel_requested_at) == (JobStatus.QUEUED, None)
    return None


async def limit_by_key(door: Door, way: Way) -> str | None:
    await _limit(door, "queue")
    running = await _claimed(door)
    await way(door, {"name": "Ada"}, {})
    await way(door, {"name": "Bob"}, {})
    assert [job.payload["name"] for job in await _claim_all(door)] == ["Bob"]
    assert running
    return None


async def max_running(door: Door, way: Way) -> str | None:
    await _change(door, max_running=1)
    await way(door, {"name": "Ada"}, {})
    await way(door, {"name": "Bob"}, {})
    assert [job.payload["name"] for job in await _claim_all(door)] == ["Ada"]
    return None


async def debounce(door: Door, way: Way) -> str | None:
    for name in ("Ada", "Bob"):
        await way(door, {"name": name}, {"debounce": {"key": "k", "seconds": 3600}})
    [job] = await _jobs(door)
    assert job.payload == {"name": "Bob"}
    assert job.scheduled_for > job.queued_at + timedelta(minutes=50)
    return None


async def unique_for(door: Door, way: Way) -> str | None:
    options = {"dedupe_key": "k", "unique_for": 3600}
    await way(door, {"name": "Ada"}, options)
    [lease] = await door.fl.claim(10, definitions=[door.definition])
    await lease.succeed()
    await way(door, {"name": "Ada"}, options)
    [job] = await _jobs(door)
    assert job.status is JobStatus.SUCCEEDED
    return None


async def expires_in(door: Door, way: Way) -> str | None:
    await way(door, {"name": "Ada"}, {"expires_in": 3600})
    [job] = await _jobs(door)
    assert job.expires_at is not None
    return None


async def tags(door: Door, way: Way) -> str | None:
    await way(door, {"name": "Ada"}, {"tags": ["night"]})
    [job] = await _jobs(door)
    assert job.tags == ("night",)
    return None


async def quota(door: Door, way: Way) -> str | None:
    await way(door, {"name": "Ada"}, {})
    async with door.fl.transaction() as tx:
        queued = sum(job.status is JobStatus.QUEUED for job in await given.all_jobs(tx))
        await tenants.change(tx, TESTER, TENANT, {"quotas": {"queued_jobs": queued}})
    try:
        await way(door, {"name": "Ada"}, {})
    except (FairleadError, Refused) as error:
        code = getattr(error, "code", str(error))
        assert len(await _jobs(door)) == 1
        return f"`{code}`"
    raise AssertionError("the quota does not hold")


async def secrets(door: Door, way: Way) -> str | None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "x-secret": True}}}
    await act(door.fl, encryption.enable, TESTER)
    await _change(door, arg_schema=schema)
    await way(door, {"name": VALUE}, {})
    [job] = await _jobs(door)
    assert job.payload == {"name": "[redacted]"}
    return None


FACTS: dict[str, Callable[[Door, Way], Awaitable[str | None]]] = {
    "`drop_new`": drop_new,
    "`replace_queued`": replace_queued,
    "`cancel_running`": cancel_running,
    "limits by key": limit_by_key,
    "limits": max_running,
    "`debounce`": debounce,
    "`unique_for`": unique_for,
    "`expires_in`": expires_in,
    "`tags`": tags,
    "quotas": quota,
    "secrets": secrets,
}


async def _change(door: Door, **fields: Any) -> None:
    await act(door.fl, definitions.patch, TESTER, door.definition, fields)


async def _limit(door: Door, strategy: str) -> None:
    await _change(door, by_key={"pointer": "/name", "max_running": 1, "strategy": strategy})


async def _claimed(door: Door) -> Any:
    return await given.running_job(door.fl, definition=door.definition)


async def _jobs(door: Door) -> list[Job]:
    found = [job for job in await given.all_jobs(door.fl) if job.definition_key == door.definition]
    return sorted(found, key=lambda job: job.queued_at)


async def _claim_all(door: Door) -> list[Job]:
    """The jobs of the definition that may start now."""
    leases = await door.fl.claim(10, definitions=[door.definition])
    return [await door.fl.read(lease.job_id) for lease in leases]


async def try_cell(door: Door, fact: str, way: str) -> str:
    """What the table says of a way and a fact: "yes", or the code of the refusal."""
    door.definition = f"for.{FACTS[fact].__name__}"
    await _change(door, key=door.definition)
    try:
        return await FACTS[fact](door, WAYS[way]) or "yes"
    except Refused as error:
        code = str(error)
    except FairleadError as error:
        code = error.code
    finally:
        await act(door.fl, tenants.change, TESTER, TENANT, {"quotas": {"queued_jobs": None}})
    assert await _jobs(door) == []
    return f"`{code}`"


def read_table() -> dict[tuple[str, str], str]:
    """The cells of the table in the docs, by way and fact."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCS.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ]
    head, _, *body = rows
    return {(row[0], fact): cell for row in body for fact, cell in zip(head[1:], row[1:], strict=True)}


@pytest.mark.parametrize("way", mostly_thorough(WAYS, fast=3))
async def test_every_option_and_limit_holds_or_is_refused(door: Door, database_url: str, way: str) -> None:
    wrong = []
    for fact in FACTS:
        said = read_table()[way, fact]
        try:
            found = await try_cell(door, fact, way)
        except AssertionError as error:
            found = f"broken: {error}"
        if found != said:
            wrong.append(f"{fact}: the docs say {said}, found {found}")
    assert not wrong, "\n".join(wrong)
    assert find_in_database(database_url, VALUE) == []


def test_the_docs_show_this_table() -> None:
    assert set(read_table()) == {(way, fact) for way in WAYS for fact in FACTS}
