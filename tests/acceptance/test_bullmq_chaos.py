"""BullMQ, its bridge and its Node workers killed in turn: no job is lost, none ends twice, no limit is exceeded.

`make thorough` does it with Redis, some jobs and kills, `make chaos-bridges` with PostgreSQL, too, 10,000 jobs and ten kills. That a
killed worker's job is delivered again, and an outage said, on either: tests/integrations/test_bullmq.py.
"""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fairlead.db.embedded import EmbeddedPostgres
from fairlead.db.scratch import scratch_folder
from tests import bullmq_parts
from tests.acceptance import bridge_chaos
from tests.acceptance.bridge_chaos import IS_LONG, TENANTS, Line, Part, ProcessPart, build_bridge, set_up
from tests.acceptance.fleet import Fleet

pytestmark = pytest.mark.thorough

QUEUES = [f"org-{tenant}" for tenant in TENANTS]
# How long BullMQ waits for a worker that was killed: longer than a busy machine lets one stand still.
LOCK = (
    {"lockDuration": 10_000, "stalledInterval": 2000}
    if IS_LONG
    else {"lockDuration": 6000, "stalledInterval": 500}
)


class PostgresBroker:
    """A PostgreSQL of BullMQ's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embedded = EmbeddedPostgres(folder)

    @property
    def url(self) -> str:
        return self._embedded.url

    def start(self) -> None:
        self._embedded = EmbeddedPostgres(self._folder)
        self._embedded.start()

    def kill(self) -> None:
        os.kill(self._embedded.pid, signal.SIGKILL)

    def stop(self) -> None:
        self._embedded.stop()


@contextmanager
def open_broker(kind: str, folder: Path) -> Iterator[tuple[Part, str]]:
    """The broker and its URL."""
    if kind == "redis":
        with bullmq_parts.redis_server(folder / "redis") as redis:
            yield redis, redis.url
        return
    with scratch_folder() as place:
        broker = PostgresBroker(place / "data")
        broker.start()
        asyncio.run(bullmq_parts.create_tables(broker.url))
        try:
            yield broker, broker.url
        finally:
            broker.stop()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["redis", "postgres"] if IS_LONG else ["redis"])
def test_nothing_is_lost_or_doubled_though_everything_is_killed(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    if why := bullmq_parts.why_not() or (bullmq_parts.why_no_redis() if kind == "redis" else None):
        pytest.skip(why)
    with (
        Fleet(database_url, tmp_path) as fleet,
        open_broker(kind, tmp_path) as (broker, url),
        ExitStack() as stack,
    ):
        set_up(fleet, kind="bullmq", queue="org-{tenant}")
        bridge = build_bridge(stack, fleet, f'driver = "bullmq"\nurl = {json.dumps(url)}')
        workers = [_build_worker(stack, url, tmp_path, number) for number in range(2)]
        for part in (*workers, bridge):
            part.start()
        bridge_chaos.run(
            fleet,
            (bridge, workers[0], broker, bridge, workers[1]) if IS_LONG else (bridge, workers[0], broker),
            lambda: _read_lines(tmp_path),
            workers=workers,
            build_payload=lambda number, ms: {"do": "echo", "value": number, "ms": ms},
        )


def _build_worker(stack: ExitStack, url: str, folder: Path, number: int) -> ProcessPart:
    file = folder / f"worker-{number}.jsonl"
    request = {"connection": url, "queues": QUEUES, "file": str(file), "concurrency": 10, **LOCK}
    argv = ["node", str(bullmq_parts.node_folder() / "worker.mjs"), json.dumps(request)]
    return ProcessPart(stack, argv, {"NODE_NO_WARNINGS": "1"}, folder / f"worker-{number}.log", "ready")


def _read_lines(folder: Path) -> Iterator[Line]:
    for path in folder.glob("worker-*.jsonl"):
        # a killed worker may have written half a line
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            ids = line["ids"]
            yield Line(
                line["what"] == "begin",
                ids["job_id"],
                ids["tenant"],
                f"{line['id']}/{line['started']}",
                line["pid"],
                line["at"],
            )
