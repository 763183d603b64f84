"""NATS, SQS and Cloud Tasks, their bridge and their workers killed in turn: no job is lost, none ends twice, no limit is exceeded.

`make thorough` does it with NATS, some jobs and kills, `make chaos-bridges` with all engines, 10,000 jobs and ten kills. NATS keeps
its messages; the emulators of SQS and Cloud Tasks lose theirs when they are killed. What differs between the engines when they are
killed, their contract covers, too: test_engines.py. The workers ask before they begin whether their attempt
has ended: an engine delivers again what was not acknowledged when a worker or the broker was killed.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fairlead.actions import access, definitions
from fairlead.db.tx import Tx
from fairlead.model.access import Role
from tests import given
from tests.acceptance import bridge_chaos
from tests.acceptance.bridge_chaos import IS_LONG, KEY, Line, ProcessPart, build_bridge, set_up
from tests.acceptance.engine_clients import Address
from tests.acceptance.engine_site import (
    BROKERS,
    ENGINES,
    SECRETS,
    describe_engine,
    name_queue,
    skip_without,
)
from tests.acceptance.fleet import Fleet
from tests.processes import FAIRLEAD, free_port

pytestmark = pytest.mark.thorough

# SQS does not tell what it has lost: only the time limit finds it. A busy machine takes seconds to deliver a message.
TIMEOUT_SECONDS = {"nats": 60, "sqs": 10, "push": 60}
# How long the engine waits for a worker that was killed. SQS is slow: it delivered half of the messages twice.
ACK_WAIT_SECONDS = {"nats": 3, "sqs": 6, "push": 3}
PREFIX = "chaos"


@pytest.mark.parametrize("engine", ENGINES if IS_LONG else ENGINES[:1])
def test_kills_lose_nothing_and_double_nothing(
    engine: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(engine)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    broker = BROKERS[engine](tmp_path)
    worker_port, server_port = free_port(), free_port()
    with Fleet(database_url, tmp_path) as fleet, ExitStack() as stack:
        stack.callback(broker.kill)
        broker.start()
        set_up(fleet, kind="delivered", queue=name_queue(engine, PREFIX, "jobs"))
        token = _finish_set_up(fleet, engine)
        server = ProcessPart(
            stack,
            [FAIRLEAD, "serve", "--port", str(server_port)],
            {"FAIRLEAD_DATABASE_URL": database_url, "PYTHONUNBUFFERED": "1"},
            tmp_path / "server.log",
            "serving",
        )
        api = f"http://127.0.0.1:{server_port}/api/v1"
        port = worker_port if engine == "push" else broker.port
        address = Address(engine, port, PREFIX, api, token, ACK_WAIT_SECONDS[engine])
        notes = tmp_path / "notes"
        worker = ProcessPart(
            stack,
            [sys.executable, "-m", "tests.acceptance.engine_worker", json.dumps(address), str(notes)],
            {"PYTHONUNBUFFERED": "1"},
            tmp_path / "worker.log",
            "working",
        )
        options = describe_engine(engine, prefix=PREFIX, broker_port=broker.port, worker_port=worker_port)
        bridge = build_bridge(stack, fleet, options)
        for part in (server, bridge, worker):
            part.start()

        bridge_chaos.run(
            fleet,
            (bridge, worker, broker),
            lambda: _read(notes),
            workers=(worker,),
            build_payload=lambda number, ms: {"value": number, "ms": ms},
        )


def _finish_set_up(fleet: Fleet, engine: str) -> str:
    """The time limit, and a token for workers that report over HTTP."""

    async def publish(tx: Tx) -> str:
        await definitions.patch(tx, given.TESTER, KEY, {"timeout_seconds": TIMEOUT_SECONDS[engine]})
        made = await access.create_token(tx, given.TESTER, name="worker", role=Role.WORKER, tenant_id=None)
        return made.secret

    secret = fleet.fl.wait(fleet.fl.inner.database.transact(publish))
    assert isinstance(secret, str)
    return secret


def _read(notes: Path) -> Iterator[Line]:
    for line in notes.read_text().splitlines():
        yield Line(*json.loads(line))
