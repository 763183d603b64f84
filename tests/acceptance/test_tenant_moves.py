"""Tenants moved between three cells under load, by processes that are killed at random: I17.

`make moves` moves fifty tenants; MOVES_CELLS may name the databases, such as those of a Citus cluster.
"""

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from fairlead import Fairlead, Settings
from tests import given
from tests.acceptance import moves_load
from tests.acceptance.fleet import QUICK, ROOT
from tests.cells import add_cell, create_cell, drop_cell
from tests.processes import FAIRLEAD, run, started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

TENANTS = int(os.environ.get("MOVES_TENANTS", "3"))
MOVES = int(os.environ.get("MOVES", "3"))
SEED = int(os.environ.get("MOVES_SEED", "17"))
# URLs of migrated databases, separated by blanks; else databases of the test's own server
CELLS = os.environ.get("MOVES_CELLS", "").split()
DEADLINE = SECONDS + 6 * MOVES
KILLED = 0.7
# Jobs that are accepted before the first move, and after each move before the next.
LOAD = 5

Urls = dict[str, str]


@pytest.fixture
def urls(server: str, migrated: str) -> Iterator[Urls]:
    """The databases of three cells: home, b and c."""
    names = ("home", "b", "c")
    made = CELLS or [create_cell(server, migrated) for _ in names]
    yield dict(zip(names, made, strict=True))
    for url in () if CELLS else made:
        drop_cell(server, url)


def ask(url: str, query: LiteralString, *params: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query, params).fetchall()


async def set_up(urls: Urls, tenants: list[str]) -> None:
    async with Fairlead(settings=Settings(database_url=urls["home"]), actor="tester") as fl:
        fl.functions.update(moves_load.fl.functions)
        await fl.close()
        await fl.open()
        for name in ("b", "c"):
            await add_cell(fl, name, urls[name])
        for number, tenant in enumerate(tenants):
            await fl.add_tenant(tenant, cell=("home", "b", "c")[number % 3])


class LimitWatch(threading.Thread):
    """Looks again and again whether a tenant has more leases than it may."""

    def __init__(self, urls: Urls) -> None:
        super().__init__()
        self._urls = urls
        self._over = threading.Event()
        self.exceeded: list[Any] = []
        self.looks = 0

    def run(self) -> None:
        query = "select tenant_id, count(*) from fairlead.leases group by tenant_id having count(*) > %s"
        with contextlib.ExitStack() as stack:
            cells = [
                stack.enter_context(psycopg.connect(url, autocommit=True)) for url in self._urls.values()
            ]
            while not self._over.wait(0.05):
                for one in cells:
                    self.exceeded += one.execute(query, [moves_load.LIMIT]).fetchall()
                self.looks += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def where_is(urls: Urls, tenant: str) -> str:
    found = ask(urls["home"], "select cell from fairlead.tenant_cells where slug = %s", tenant)
    return str(found[0][0]) if found else "home"


def move(urls: Urls, tenant: str, target: str, chance: random.Random) -> int:
    """Move a tenant by processes that are killed at random, until one says that it has moved; how many were killed."""
    argv = [FAIRLEAD, "tenants", "move", tenant, "--to", target, "--drain-seconds", "0.2", "--json"]
    env = {"FAIRLEAD_DATABASE_URL": urls["home"]} | QUICK
    killed = 0
    while killed < 5 and chance.random() < KILLED and where_is(urls, tenant) != target:
        with started(argv, env=env, cwd=ROOT) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(0.3, 2.0))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
    until(lambda: has_moved(urls, argv, env, tenant, target), f"{tenant} to be in {target}", seconds=DEADLINE)
    return killed


def has_moved(urls: Urls, argv: list[str], env: dict[str, str], tenant: str, target: str) -> bool:
    if where_is(urls, tenant) == target and not ask(
        urls["home"], "select from fairlead.tenant_moves where slug = %s", tenant
    ):
        return True
    ended = run(*argv[1:], env=env)
    if ended.returncode:
        print(ended.stderr[-500:])  # noqa: T201
    return ended.returncode == 0


def accepted(folder: Path) -> set[UUID]:
    return {UUID(line) for file in folder.glob("*.ids") for line in file.read_text().split()}


def wait_for_load(folder: Path) -> None:
    before = len(accepted(folder))
    try:
        until(lambda: len(accepted(folder)) >= before + LOAD, "more jobs to be accepted", seconds=DEADLINE)
    except AssertionError:
        print((folder / "load.log").read_text()[-3000:])  # noqa: T201
        raise


@pytest.mark.timeout(DEADLINE * 5)
def test_tenants_move_under_load_and_nothing_is_lost_or_doubled(urls: Urls, tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311
    tenants = [f"tenant-{number}" for number in range(TENANTS)]
    asyncio.run(set_up(urls, tenants))
    watch = LimitWatch(urls)
    killed = 0
    with contextlib.ExitStack() as stack:
        for url in urls.values():
            argv = [FAIRLEAD, "worker", "tests.acceptance.moves_load:fl", "--concurrency", "8"]
            stack.enter_context(
                started(argv, env={"FAIRLEAD_DATABASE_URL": url} | QUICK, cwd=ROOT, stdout=subprocess.DEVNULL)
            )
        load = [
            sys.executable,
            "-m",
            "tests.acceptance.moves_load",
            urls["home"],
            str(tmp_path / "1.ids"),
            *tenants,
        ]
        said = stack.enter_context((tmp_path / "load.log").open("w"))
        enqueuer = stack.enter_context(started(load, env={}, cwd=ROOT, stdout=said))
        watch.start()
        stack.callback(watch.stop)
        wait_for_load(tmp_path)
        for number in itertools.count():
            # a quick machine may end all its moves before they are killed
            if number >= MOVES and (killed or MOVES < 3):
                break
            tenant = tenants[number % TENANTS]
            target = chance.choice([name for name in urls if name != where_is(urls, tenant)])
            killed += move(urls, tenant, target, chance)
            wait_for_load(tmp_path)
        enqueuer.send_signal(signal.SIGTERM)
        enqueuer.wait(timeout=DEADLINE)
        ids = accepted(tmp_path)
        until(lambda: succeeded(urls) >= ids, "all jobs to succeed", seconds=DEADLINE, longest_pause=0.3)
        until(lambda: not unfinished(urls), "the rest to end", seconds=DEADLINE, longest_pause=0.3)
        until(lambda: watch.looks > 10, "the limits to be looked at")
    check_outcomes(urls, ids)
    assert watch.exceeded == []
    print(f"{len(ids)} jobs, {number} moves, {killed} processes killed, {watch.looks} looks at limits")  # noqa: T201


def succeeded(urls: Urls) -> set[UUID]:
    query = "select id from fairlead.job_records where status = 'succeeded'"
    return {one for url in urls.values() for (one,) in ask(url, query)}


def unfinished(urls: Urls) -> int:
    query = "select count(*) from fairlead.job_records where status in ('queued', 'running')"
    return sum(ask(url, query)[0][0] for url in urls.values())


def check_outcomes(urls: Urls, ids: set[UUID]) -> None:
    """Each job is in one cell, has succeeded once, and is counted once; each tenant lives in one cell."""
    rows = [
        row for url in urls.values() for row in ask(url, "select id, status::text from fairlead.job_records")
    ]
    assert len(rows) == len({job_id for job_id, _ in rows})
    assert {status for _, status in rows} == {"succeeded"}
    assert ids <= {job_id for job_id, _ in rows}
    ended = [
        row[0]
        for url in urls.values()
        for row in ask(
            url,
            "select a.resource_id from fairlead.audit_entries a join fairlead.tenants t on t.id = a.tenant_id "
            "where a.action = 'JOB_SUCCEEDED' and t.placement = 'here'",
        )
    ]
    assert len(ended) == len(set(ended)) == len(rows)
    assert ask(urls["home"], "select from fairlead.tenant_moves") == []
    living = [
        slug
        for url in urls.values()
        for (slug,) in ask(
            url, "select slug from fairlead.tenants where placement = 'here' and slug <> 'global'"
        )
    ]
    assert sorted(living) == sorted(set(living))
    assert len(living) == TENANTS
    for url in urls.values():
        asyncio.run(check_consistency(url))


async def check_consistency(url: str) -> None:
    async with Fairlead(settings=Settings(database_url=url), actor="tester") as fl:
        await given.no_inconsistencies(fl.database)
