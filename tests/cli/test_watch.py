"""`jobs watch`, as a person and a script use it."""

import asyncio
import json
import os
import pty
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from rich.console import Console

from fairlead import Fairlead, Settings
from fairlead.actions import stats
from fairlead.actions.stats import StatsOverview
from fairlead.cli import watch
from fairlead.cli.watch import GrowthRate, OverviewReader, WatchLines, as_view
from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseUnreachable, Forbidden, TenantUnknown
from fairlead.model.access import Principal, Role
from fairlead.model.job import JobStatus
from fairlead.store import tenants
from tests import given
from tests.cli.test_commands import Shell
from tests.preloaded import Process
from tests.processes import FAIRLEAD, environment, until
from tests.waiting import SECONDS

NOON = datetime(2026, 2, 16, 12, tzinfo=UTC)


@pytest.fixture
async def busy(tx: Tx) -> list[UUID]:
    """Jobs in every status, of two tenants: their ids."""
    waiting = [await given.queued_job(tx), await given.queued_job(tx, tenant=given.OTHER)]
    running = [await given.running_job(tx), await given.running_job(tx, tenant=given.OTHER)]
    ended = [
        await given.ended_job(tx, status) for status in ("succeeded", "failed", "dead_letter", "canceled")
    ]
    return waiting + running + ended


async def overview(tx: Tx, tenant: str | None = None) -> StatsOverview:
    return await stats.get_overview(tx, given.TESTER, tenant=tenant)


# What is seen


async def test_it_adds_up_the_counts_and_names_what_runs_and_what_failed(tx: Tx, busy: list[UUID]) -> None:
    before = {JobStatus.QUEUED: 2, JobStatus.RUNNING: 2}
    seen = await overview(tx)

    assert seen.counts.by_status == {**dict.fromkeys(JobStatus, 1), **before}
    assert seen.counts.finished == 4
    assert [one.job_id for one in seen.running] == busy[2:4]
    assert seen.running[0].worker_id == "somebody"
    assert {(one.job_id, one.status) for one in seen.failures} == {
        (busy[5], JobStatus.FAILED),
        (busy[6], JobStatus.DEAD_LETTER),
    }


async def test_a_tenant_sees_only_its_own(tx: Tx, busy: list[UUID]) -> None:
    other = await overview(tx, given.OTHER)

    assert (other.counts.queued, other.counts.running, other.counts.finished) == (1, 1, 0)
    assert [one.tenant for one in other.running] == [given.OTHER]
    assert other.failures == []
    with pytest.raises(TenantUnknown):
        await overview(tx, "nobody")

    ids = await tenants.get_ids(tx, [given.TENANT, given.OTHER])
    viewer = Principal("viewer", Role.VIEWER, ids[given.OTHER])
    assert (await stats.get_overview(tx, viewer)).counts.queued == 1
    with pytest.raises(Forbidden):
        await stats.get_overview(tx, viewer, tenant=given.TENANT)


async def test_no_more_rows_are_read_than_fit(tx: Tx, busy: list[UUID]) -> None:
    seen = await stats.get_overview(tx, given.TESTER, rows=1)

    assert (len(seen.running), len(seen.failures)) == (1, 1)
    assert seen.counts.running == 2


async def test_how_many_there_are_is_a_sum_and_jobs_are_not_counted(tx: Tx, busy: list[UUID]) -> None:
    await tx.run(
        "insert into fairlead.counts (tenant_id, definition_id, minute, queued) "
        "select tenant_id, definition_id, minute, 1000000 from fairlead.counts limit 1"
    )

    assert (await overview(tx)).counts.queued == 1_000_002


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = GrowthRate(timedelta(seconds=5))
    at = [rate.add(NOON + timedelta(seconds=second), 10 * second) for second in range(10)]
    assert at == [0.0] + [10.0] * 9
    quiet = [rate.add(NOON + timedelta(seconds=second), 90) for second in range(10, 16)]
    assert quiet[0] < 10
    assert quiet[-1] == 0
    assert rate.add(NOON + timedelta(seconds=16), 80) == 0


# How it is shown


async def test_lines_tell_each_job_once(tx: Tx, busy: list[UUID]) -> None:
    lines, seen = WatchLines(), await overview(tx)

    first = lines.of(seen, 2.5)
    assert "queued 2  running 2  succeeded 1  failed 1  dead_letter 1  canceled 1  2.5/s" in first[0]
    assert len(first) == 5
    assert f"running {busy[2]}  acme  greet  on somebody" in first[1]
    assert len(lines.of(seen, 2.5)) == 1


async def test_a_view_has_everything_and_says_how_much_it_leaves_out(tx: Tx, busy: list[UUID]) -> None:
    console = Console(width=200, file=StringIO())
    console.print(as_view(await stats.get_overview(tx, given.TESTER, rows=1), 1234.5))
    text = cast("StringIO", console.file).getvalue()

    for word in (
        "dead_letter",
        "1,234.5/s",
        "longest first (1 more)",
        "failed last",
        str(busy[2]),
        "somebody",
    ):
        assert word in text


# The command


def test_a_script_gets_one_object_a_refresh(shell: Shell) -> None:
    shell.json("jobs", "enqueue", "anything", "--tenant", "acme")

    seen = shell.json("jobs", "watch", "--seconds", "0")

    assert seen["counts"] == {**{str(status): 0 for status in JobStatus}, "queued": 1}
    assert (seen["per_second"], seen["running"], seen["failures"]) == (0.0, [], [])
    assert seen["at"].endswith("Z")
    assert shell.json("jobs", "watch", "--tenant", "umbrella", "--seconds", "0")["counts"]["queued"] == 0
    assert shell.refused("jobs", "watch", "--tenant", "nobody", "--seconds", "0") == "tenant_unknown"


def test_it_refreshes_until_its_time_is_over(
    shell: Shell, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read() -> StatsOverview:
        async with Database(str(settings.database_url), settings) as database:
            return await database.transact(overview)

    seen = asyncio.run(read())

    async def look(self: OverviewReader, stop: asyncio.Event) -> StatsOverview:
        """At once: a look at the database may take longer than all of it."""
        return seen

    monkeypatch.setattr(OverviewReader, "look", look)
    monkeypatch.setattr(watch, "EVERY_SECONDS", 0.2)
    result = shell("jobs", "watch", "--seconds", "0.6", "--json")

    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) >= 2


def test_where_there_is_no_terminal_there_are_lines(shell: Shell) -> None:
    result = shell("jobs", "watch", "--seconds", "0")

    assert result.exit_code == 0
    assert "queued 0  running 0" in result.stdout
    assert "\x1b" not in result.stdout


async def read_until(process: asyncio.subprocess.Process, fits: Callable[[Any], bool]) -> Any:
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        async for line in process.stdout:
            if fits(seen := json.loads(line)):
                return seen
    raise AssertionError("it ended before that was seen")


@pytest.mark.thorough
async def test_it_hears_of_jobs_shows_them_running_and_ends_on_a_signal(
    fl: Fairlead, database_url: str
) -> None:
    let_go = asyncio.Event()

    @fl.job
    async def hold() -> None:
        await let_go.wait()

    await fl._publish()
    watching = await asyncio.create_subprocess_exec(
        FAIRLEAD,
        *("jobs", "watch", "--json"),
        env=environment(FAIRLEAD_DATABASE_URL=database_url),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        await read_until(watching, lambda seen: seen["counts"]["queued"] == 0)
        job = await fl.enqueue("hold", tenant=given.TENANT)
        await read_until(watching, lambda seen: seen["counts"]["queued"] == 1)
        ticking: Awaitable[Any] = asyncio.ensure_future(fl.tick())
        seen = await read_until(watching, lambda seen: seen["running"])
        [running] = seen["running"]
        assert (running["job_id"], running["definition_key"]) == (str(job.id), "hold")
        let_go.set()
        await ticking
        done = await read_until(watching, lambda seen: seen["counts"]["succeeded"] == 1)
        assert done["per_second"] > 0
        watching.send_signal(signal.SIGINT)
        assert await watching.wait() == 0
    finally:
        if watching.returncode is None:
            watching.kill()
        await watching.communicate()


@pytest.mark.thorough
def test_it_rides_out_a_restart_of_the_database_and_says_so(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "data")
    url = server.start()
    try:
        asyncio.run(migrate.up(url, "fairlead"))
        out, err = tmp_path / "out", tmp_path / "err"
        with out.open("w") as to_out, err.open("w") as to_err:
            watching = Process(
                [FAIRLEAD, "jobs", "watch", "--json"],
                # it says that the database is away when it has waited this long for a connection: twice here
                env=environment(FAIRLEAD_DATABASE_URL=url, FAIRLEAD_CONNECT_TIMEOUT_SECONDS="4"),
                stdout=to_out,
                stderr=to_err,
            )
        try:
            until(lambda: out.read_text().count("\n") > 1, "the first looks")
            server.stop()
            until(lambda: "The watch continues" in err.read_text(), "it to say that the database is away")
            seen = out.read_text().count("\n")
            server.start()
            until(lambda: "The database is back." in err.read_text(), "it to say that the database is back")
            until(lambda: out.read_text().count("\n") > seen + 1, "more looks")
            server.stop()
            until(lambda: err.read_text().count("The watch continues") == 2, "it to say so again")
            watching.send_signal(signal.SIGINT)  # also while it waits
            assert watching.wait(timeout=SECONDS) == 0
        finally:
            watching.kill()
            watching.wait()
        assert "Traceback" not in err.read_text()
        assert all(json.loads(line)["counts"] for line in out.read_text().splitlines())
    finally:
        server.stop()


async def test_a_watch_whose_time_is_up_while_the_database_is_away_has_failed() -> None:
    class Away:
        async def transact(self, _: Any) -> None:
            raise DatabaseUnreachable("Nobody is there.")

    patience = OverviewReader(lambda tx: stats.get_overview(tx, given.TESTER), cast("Database", Away()))
    patience.end()
    assert await patience.look(asyncio.Event()) is None
    with pytest.raises(DatabaseUnreachable):
        patience.end()


def test_on_a_terminal_the_view_stays_in_place(database_url: str) -> None:
    ours, theirs = pty.openpty()
    env = environment(FAIRLEAD_DATABASE_URL=database_url, TERM="xterm", COLUMNS="120")
    with os.fdopen(ours, "rb", buffering=0) as screen:
        watching = Process(
            [FAIRLEAD, "jobs", "watch", "--seconds", "0.5"], env=env, stdout=theirs, stderr=theirs
        )
        assert watching.wait(timeout=SECONDS) == 0
        os.close(theirs)
        shown = screen.read(65_536).decode()

    assert "dead_letter" in shown
    assert "Ctrl-C ends" in shown
    assert "\x1b[1A" in shown  # up again, and over it
