"""Workers are killed between the changes of their handlers and the ends of their jobs: both are there, or neither.

`make test` kills a few; `make kills` 200 (TX_KILLS).
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import psycopg
import pytest

from fairlead import Settings, sync
from fairlead.db.tx import Tx
from fairlead.store import rescue, testing
from tests import given
from tests.given import TENANT
from tests.processes import started, until
from tests.waiting import SECONDS

pytestmark = pytest.mark.thorough

KILLS = int(os.environ.get("TX_KILLS", "7"))
# What one process may do before it is killed.
MOST_CHANGES = 25
WORKER = Path(__file__).parent / "transaction_worker.py"
WAYS = ("lent", "lent_in_thread", "own", "own_in_thread")
POINTS = ("changed", "written", "committed")
# One statement, and so one snapshot: jobs whose end and changes differ, or that changed something twice.
DISAGREE = """
select j.id, j.status::text, count(e.job_id)
from fairlead.jobs j left join public.effects e on e.job_id = j.id
group by j.id, j.status having count(e.job_id) <> (j.status = 'succeeded')::integer
"""


async def put_back(tx: Tx) -> None:
    """Put back the jobs of the killed worker, as after its leases have expired; deaths are not counted against them."""
    await given.end_leases(tx)
    await rescue.rescue(tx, limit=1000)
    await tx.run(
        "update fairlead.job_records set lost_count = 0, suspected = 0, accused = false where status = 'queued'"
    )
    await tx.run("update fairlead.later set alone = false")
    await testing.make_all_due(tx)


def kill_one(url: str, number: int, chance: random.Random) -> None:
    """Run a worker and kill it: the first ones at fixed points, each in turn, the others at a random time after a change."""
    point = POINTS[number] if number < len(POINTS) else ""
    with started(
        [sys.executable, str(WORKER)], env={"FAIRLEAD_DATABASE_URL": url, "DIE_AT": point}
    ) as process:
        if not point:
            output = process.stdout
            assert output is not None
            changes = chance.randint(1, MOST_CHANGES)
            while changes:
                line = output.readline()
                assert line, "the worker ended by itself"
                changes -= line.startswith("changed")
            time.sleep(chance.uniform(0, 0.005))
            process.send_signal(signal.SIGKILL)
        process.wait(SECONDS)
        assert process.returncode == -signal.SIGKILL


@pytest.mark.timeout(KILLS * SECONDS)
def test_changes_and_ends_agree_wherever_a_worker_is_killed(database_url: str) -> None:
    chance = random.Random(KILLS)  # noqa: S311
    in_flight = 0
    with (
        psycopg.connect(database_url, autocommit=True) as connection,
        sync.Fairlead(settings=Settings(database_url=database_url), actor="tester") as fl,
    ):
        connection.execute("create table public.effects (job_id uuid)")
        connection.execute("create index on public.effects (job_id)")

        def disagreements() -> list[tuple[object, ...]]:
            return connection.execute(DISAGREE).fetchall()

        def leases() -> int:
            [(number,)] = connection.execute("select count(*) from fairlead.leases").fetchall()
            return int(number)

        def all_put_back() -> bool:
            # sessions of the killed process hold their locks until the server notices
            fl.wait(fl.inner.database.transact(put_back))
            return leases() == 0

        with started([sys.executable, str(WORKER)], env={"FAIRLEAD_DATABASE_URL": database_url}) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == "open\n"  # the definitions are published
        for number in range(KILLS):
            # more than the worker needs to do until it is killed, also if nothing is left of the jobs before
            fl.enqueue_many(
                [{"definition": way, "tenant": TENANT} for way in WAYS for _ in range(MOST_CHANGES)]
            )
            kill_one(database_url, number, chance)
            assert disagreements() == []
            in_flight += leases()
            until(all_put_back, "the leases of the killed worker to be put back")
            assert disagreements() == []
        assert in_flight > 0, "no kill hit a running job"
        [(changed,)] = connection.execute("select count(*) from public.effects").fetchall()
        sys.stderr.write(
            f"{KILLS} kills, {in_flight} attempts lost with them, {changed} jobs with their changes\n"
        )
