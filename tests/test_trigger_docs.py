"""What the pages about events and schedules show is what happens, block by block."""

import ast
import inspect
import re
import shlex
from pathlib import Path
from textwrap import dedent
from types import CodeType
from typing import Any
from uuid import UUID

import psycopg
import pytest

from fairlead import Fairlead, Settings, testing
from tests.cli.test_commands import Shell
from tests.given import TENANT

HOW_TO = Path(__file__).parents[1] / "docs" / "how-to"
PAGES = ("events-and-triggers.md", "schedules.md")
DEFINITIONS = ("sync-dropbox", "send-invoice", "nightly-report", "poll-inbox", "daily-report")


@pytest.fixture
def shell(database_url: str) -> Shell:
    return Shell(database_url)


def blocks(page: str, language: str) -> list[str]:
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(page: str) -> list[list[str]]:
    """Every command that ends by itself."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    argvs = [shlex.split(line)[1:] for line in lines if line.startswith("fairlead ")]
    return [argv for argv in argvs if argv != ["scheduler"]]


@pytest.mark.parametrize(("page", "kind"), [(PAGES[0], "event"), (PAGES[1], "schedule")])
def test_each_command_works_as_printed(shell: Shell, page: str, kind: str) -> None:
    for key in DEFINITIONS:
        shell.json("definitions", "put", key)
    made = {"EVENT_ID": shell.json("events", "emit", "order.paid", "{}", "--tenant", TENANT)["id"]}
    shown = commands(page)
    assert len(shown) >= 7
    for argv in shown:
        if "TRIGGER_ID" in argv:
            made["TRIGGER_ID"] = shell.json("triggers", "list", "--type", kind)["items"][0]["id"]
        result = shell(*(made.get(word, word) for word in argv))
        assert result.exit_code == 0, f"{argv}: {result.output}"


def test_each_backfill_works_as_printed_and_again(shell: Shell) -> None:
    shell.json("definitions", "put", "nightly-report")
    adding = ("triggers", "add", "--tenant", TENANT, "--definition", "nightly-report", "--cron", "0 2 * * *")
    made = shell.json(*adding)["id"]
    shown = commands("backfill.md")
    assert len(shown) == 3
    for argv in shown * 2:
        result = shell(*(made if word == "TRIGGER_ID" else word for word in argv))
        assert result.exit_code == 0, f"{argv}: {result.output}"
    # seven nights, and those of two days: three if it becomes two o'clock meanwhile
    assert len(shell.json("jobs", "list")["items"]) in (9, 10)


def test_the_dry_run_that_is_printed_would_enqueue(shell: Shell) -> None:
    for key in DEFINITIONS:
        shell.json("definitions", "put", key)
    added = [argv for argv in commands(PAGES[0]) if argv[:2] == ["triggers", "add"]][-1]
    [tried] = [argv for argv in commands(PAGES[0]) if "--sample" in argv]
    made = shell.json(*added)["id"]
    answer = shell.json(*(made if word == "TRIGGER_ID" else word for word in tried))
    assert (answer["would"], answer["payload"]["order"], answer["payload"]["shop"]) == ("enqueue", 7, TENANT)


def test_the_sql_works_for_a_role_with_the_grants_that_are_printed(database_url: str) -> None:
    emit, grants = blocks(PAGES[0], "sql")
    with psycopg.connect(database_url) as connection:
        connection.execute("create role shop")
        connection.execute(grants.encode())
        connection.execute("set local role shop")
        [(event_id,)] = connection.execute(emit.encode()).fetchall()
        assert isinstance(event_id, UUID)
        connection.execute('select fairlead.emit_joined(\'{"tenant": "nobody", "name": "a", "data": {}}\')')
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("select * from fairlead.events")
        connection.rollback()


async def test_the_python_works(fl: Fairlead, database_url: str) -> None:
    [emit, _] = blocks(PAGES[0], "python")
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await connection.execute("create table folders (id int, changed_at timestamptz)")
    await _run(emit, fl=fl, psycopg=psycopg, url=database_url)
    async with fl.transaction() as tx:
        assert await tx.values("select count(*) from fairlead.events where dispatched_at is null") == [(2,)]


async def test_the_schedules_in_code_are_kept(shell: Shell, fl: Fairlead) -> None:
    [schedules] = blocks(PAGES[1], "python")
    await _run(schedules, fl=fl)
    await fl._publish()
    await fl.sync_schedules()
    async with fl.transaction() as tx:
        found = await tx.values("select name, cron_expr, every_seconds from fairlead.job_triggers order by 1")
    assert found == [("nightly-report", "0 2 * * *", None), ("poll-inbox", None, 90)]


async def test_the_trigger_in_code_is_kept(fl: Fairlead) -> None:
    [_, on] = blocks(PAGES[0], "python")
    await _run(on, fl=fl)
    await fl._publish()
    await fl.emit("order.paid", tenant=TENANT, data={"id": 7, "total": 10})
    await testing.dispatch_events(fl)
    await testing.assert_enqueued(fl, "send-invoice", tenant=TENANT, payload={"order": 7}, count=1)


@pytest.mark.thorough
async def test_the_events_of_a_test_make_its_jobs(server: str) -> None:
    app = Fairlead(settings=Settings())
    page = "test-your-jobs.md"
    [on] = [block for block in blocks(page, "python") if "@fl.on" in block]
    [tested] = [block for block in blocks(page, "python") if "dispatch_events" in block]

    async def sign_up(email: str, *, tenant: str) -> None:
        await app.emit("user.joined", tenant=tenant, data={"email": email})

    await _run(on, fl=app)
    async with testing.fairlead(app, server_url=server) as fl:
        welcome = fl.functions["send_welcome"]
        await _run(tested, fl=fl, testing=testing, sign_up=sign_up, send_welcome=welcome)


async def _run(block: str, **names: Any) -> None:
    code = compile(dedent(block), "a page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names["__name__"] = "pages"
    if isinstance(code, CodeType) and code.co_flags & inspect.CO_COROUTINE:
        await eval(code, names)  # noqa: S307
    else:
        exec(code, names)  # noqa: S102
