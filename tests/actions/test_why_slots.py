"""Why a job waits for slots or labels."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fairlead.actions.why import explain_job
from fairlead.db.tx import Tx
from fairlead.model.reason import Reason
from fairlead.store import workers
from tests import given
from tests.given import TESTER

HOUR = timedelta(hours=1)
GPU = {"gpu": "true"}


async def set_field(tx: Tx, column: str, value: Any) -> None:
    await given.set_definition(tx, "greet", **{column: value})


async def register(tx: Tx, name: str, **options: Any) -> None:
    values = {"hostname": "h", "version": "", "keys": ["greet"], "running": 0, "concurrency": 4}
    await workers.register(tx, **{"worker_id": name, **values, **options})


async def explain(tx: Tx, job_id: Any) -> dict[str, Reason]:
    return {reason.code: reason for reason in (await explain_job(tx, TESTER, job_id)).reasons}


async def test_no_live_worker_has_the_labels(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await set_field(tx, "requires", GPU)
    await register(tx, "plain")
    await register(tx, "elsewhere", keys=["anything"], labels=GPU)
    reason = (await explain(tx, job_id))["labels"]
    assert (
        reason.message
        == "No live worker has gpu=true, which greet requires: 1 serves it without these labels."
    )
    assert reason.facts == {"requires": GPU, "workers": 1}
    await register(tx, "with", labels=GPU)
    assert (await explain(tx, job_id)).keys() == {"ready"}


async def test_no_live_worker_has_the_slots(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await set_field(tx, "slots", 8)
    await set_field(tx, "requires", GPU)
    await register(tx, "large", concurrency=16)
    await register(tx, "small", labels=GPU)
    reason = (await explain(tx, job_id))["slots"]
    assert reason.message == "It needs 8 slots, and no live worker that may run it has more than 4."
    await register(tx, "small", labels=GPU, concurrency=8)
    [ready] = (await explain(tx, job_id)).values()
    assert ready.message == "Nothing holds it back: it runs when a worker has 8 free slots."


async def test_a_worker_over_http_that_counts_no_slots_takes_every_job(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await set_field(tx, "slots", 8)
    await register(tx, "web", concurrency=1, metadata={"transport": "http"})
    assert (await explain(tx, job_id)).keys() == {"ready"}
    await register(tx, "web", concurrency=1, metadata={"transport": "http", "slots": 1})
    assert (await explain(tx, job_id)).keys() == {"slots"}


async def test_a_job_waits_for_workers_that_it_prefers(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await set_field(tx, "prefers", GPU)
    await register(tx, "plain")
    assert (await explain(tx, job_id)).keys() == {"ready"}
    await register(tx, "with", labels=GPU)
    await given.set_job(tx, job_id, queued_at=datetime.now(UTC) + HOUR)
    reason = (await explain(tx, job_id))["preferred_labels"]
    assert reason.message.startswith(
        "It prefers workers with gpu=true, and a live worker has these labels. Others may"
    )
    ago = datetime.now(UTC) - HOUR
    await given.set_job(tx, job_id, queued_at=ago, scheduled_for=ago)
    assert "preferred_labels" not in await explain(tx, job_id)


async def test_a_host_without_the_labels_is_named(tx: Tx) -> None:
    host_id = await given.host(tx, "press", seen=timedelta())
    await set_field(tx, "kind", "host")
    await set_field(tx, "requires", GPU)
    job_id = await given.queued_job(tx, host_id=host_id)
    reason = (await explain(tx, job_id))["labels"]
    assert reason.message == "Its definition requires gpu=true, which host press does not have."
    await given.set_hosts(tx, labels={"gpu": True})
    assert "labels" not in await explain(tx, job_id)
