"""Edit a waiting job: either the edit or a claim wins, and the queue agrees with the record afterwards."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fairlead.actions import definitions, edit_job, hosts, jobs
from fairlead.db.tx import Tx
from fairlead.errors import (
    InvalidInput,
    JobNotEditable,
    PayloadInvalid,
    SecretsRequired,
)
from fairlead.model.job import Job, JobEdit, JobStatus
from fairlead.store import jobs as stored
from fairlead.store import queue, tenants
from tests import given
from tests.given import TENANT, TESTER

FAR = datetime(2200, 1, 1, tzinfo=UTC)
BY_KEY: dict[str, Any] = {"pointer": "/customer", "max_running": 1}


async def _edit(tx: Tx, job_id: UUID, **change: Any) -> Job:
    edited = await edit_job.edit(tx, TESTER, given.catalog(), job_id, JobEdit(**change))
    assert await stored.list_inconsistencies(tx) == []
    return edited


async def _place(tx: Tx, job_id: UUID) -> str:
    """Where a job waits."""
    return (await given.place_of(tx, job_id))[0]


async def _claim(tx: Tx, wanted: int = 1) -> list[UUID]:
    claimed = await queue.claim(tx, worker="worker", wanted=wanted, lease_seconds=600)
    return [claimed.lease(job).job_id for job in claimed.jobs]


async def _keyed(tx: Tx, **more: Any) -> None:
    await definitions.patch(tx, TESTER, "keyed", {"key": "keyed", "by_key": {**BY_KEY, **more}})


async def _of_customer(tx: Tx, customer: str) -> UUID:
    return await given.queued_job(tx, definition="keyed", payload={"customer": customer})


async def test_an_edit_changes_payload_priority_and_time(tx: Tx) -> None:
    job_id = await given.queued_job(tx, dedupe_key="k", correlation_id="c")

    edited = await _edit(tx, job_id, payload={"name": "Grace", "n": 2}, priority=7, scheduled_for=FAR)

    assert (edited.payload, edited.priority, edited.scheduled_for) == ({"name": "Grace", "n": 2}, 7, FAR)
    assert (edited.status, edited.dedupe_key, edited.correlation_id) == (JobStatus.QUEUED, "k", "c")
    assert await _place(tx, job_id) == "later"
    assert (await given.queued_job(tx, dedupe_key="k")) == job_id


async def test_a_time_that_is_over_means_now(tx: Tx) -> None:
    job_id = await given.queued_job(tx, scheduled_for=FAR)

    edited = await _edit(tx, job_id, scheduled_for=datetime(2001, 1, 1, tzinfo=UTC))

    assert edited.scheduled_for >= edited.queued_at
    assert await _claim(tx) == [job_id]


async def test_a_backdated_job_is_edited_where_it_waits(tx: Tx) -> None:
    """The queue has the time when it was enqueued."""
    job_id = await given.queued_job(tx, scheduled_for=datetime(2001, 1, 1, tzinfo=UTC))

    assert (await _edit(tx, job_id, priority=7)).priority == 7


async def test_a_delay_counts_from_now(tx: Tx) -> None:
    job_id = await given.queued_job(tx)

    edited = await _edit(tx, job_id, delay=timedelta(days=1))

    assert edited.scheduled_for - edited.queued_at >= timedelta(days=1)
    assert await _claim(tx) == []


async def test_priority_decides_the_order_again(tx: Tx) -> None:
    first, second = await given.queued_job(tx), await given.queued_job(tx)

    await _edit(tx, second, priority=-1)

    assert await _claim(tx) == [second]
    assert await _claim(tx) == [first]


async def test_a_running_or_ended_job_is_not_edited(tx: Tx) -> None:
    canceled = await given.queued_job(tx)
    await jobs.cancel(tx, TESTER, canceled)

    for job_id in (await given.running_job(tx), canceled):
        with pytest.raises(JobNotEditable, match="only queued jobs"):
            await _edit(tx, job_id, priority=1)


async def test_a_payload_that_does_not_fit_the_schema_is_refused_and_nothing_changes(tx: Tx) -> None:
    job_id = await given.queued_job(tx)

    with pytest.raises(PayloadInvalid):
        await _edit(tx, job_id, payload={"n": 1}, priority=3)

    job, _ = await jobs.show_job(tx, TESTER, job_id)
    assert (job.payload, job.priority) == ({"name": "Ada"}, 100)
    assert await _claim(tx) == [job_id]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": 1_000_001},
        {"priority": "1"},
        {"scheduled_for": datetime(2026, 1, 1)},
        {"delay": -1},
        {"delay": 5, "scheduled_for": FAR},
    ],
)
async def test_invalid_changes_are_refused(tx: Tx, change: dict[str, Any]) -> None:
    job_id = await given.queued_job(tx)

    with pytest.raises(InvalidInput):
        await _edit(tx, job_id, **change)


async def test_an_edit_is_audited_without_values_of_the_payload(tx: Tx) -> None:
    job_id = await given.queued_job(tx, priority=5)

    await _edit(tx, job_id, payload={"name": "Grace"}, priority=6)

    [entry] = await given.audit_entries(tx, "JOB_EDITED", resource_id=str(job_id))
    assert entry.details["changed"] == {"payload": ["name"], "priority": {"was": 5, "is": 6}}
    assert "Grace" not in str(entry.details)


async def test_an_edit_without_a_difference_is_not_audited(tx: Tx) -> None:
    job_id = await given.queued_job(tx)

    await _edit(tx, job_id, payload={"name": "Ada"})

    assert await given.audit_entries(tx, "JOB_EDITED") == []


async def test_an_edit_needs_the_secrets_again(tx: Tx) -> None:
    schema = {"properties": {"password": {"type": "string", "x-secret": True}}}
    await definitions.patch(tx, TESTER, "secretive", {"key": "secretive", "arg_schema": schema})
    payload = {"password": "correct horse", "to": "here"}
    job_id = await given.queued_job(tx, definition="secretive", payload=payload)

    with pytest.raises(SecretsRequired):
        await _edit(tx, job_id, payload={"password": "[redacted]", "to": "there"})
    edited = await _edit(tx, job_id, payload={"password": "battery staple", "to": "there"})

    assert edited.payload == {"password": "[redacted]", "to": "there"}


async def test_a_step_of_a_run_keeps_its_payload(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await tx.run(
        "insert into fairlead.workflow_runs (id, tenant_id, key, status, steps, input) "
        "select %(id)s, tenant_id, 'flow', 'running', 1, '{}' from fairlead.job_records where id = %(id)s",
        {"id": job_id},
    )
    await tx.run("update fairlead.job_records set workflow_run_id = id where id = %s", [job_id])

    with pytest.raises(JobNotEditable, match="step of a workflow run"):
        await _edit(tx, job_id, payload={"name": "Grace"})

    assert (await _edit(tx, job_id, priority=3)).priority == 3


async def _tags(tx: Tx, job_id: UUID) -> tuple[Any, set[str]]:
    """The tags of a job's record, and those of its rows in the index."""
    job = await given.read_job(tx, job_id)
    return job.tags, {tag for tag, _ in await given.job_tags(tx, job_id)}


async def test_tags_are_replaced_and_removed(tx: Tx) -> None:
    job_id = await given.queued_job(tx, tags=("a", "b"))

    await _edit(tx, job_id, tags=["b", "c"])
    assert await _tags(tx, job_id) == (("b", "c"), {"b", "c"})
    await _edit(tx, job_id, priority=3)
    assert await _tags(tx, job_id) == (("b", "c"), {"b", "c"})
    await _edit(tx, job_id, tags=[])
    assert await _tags(tx, job_id) == (None, set())

    for refused in (["a,b"], ["a", "a"], "ab", ["[redacted]"]):
        with pytest.raises(InvalidInput):
            await _edit(tx, job_id, tags=refused)


async def test_an_expiry_moves_with_the_time(tx: Tx) -> None:
    job_id = await given.queued_job(tx, scheduled_for=FAR, expires_in=3600)

    edited = await _edit(tx, job_id, scheduled_for=FAR + timedelta(days=1), tags=["x"])

    assert edited.expires_at == FAR + timedelta(days=1, hours=1)
    assert await given.expiring_jobs(tx) == {job_id: edited.expires_at}


async def test_a_tag_that_holds_a_secret_keeps_the_payload(tx: Tx) -> None:
    schema = {"properties": {"password": {"type": "string", "x-secret": True}}}
    await definitions.patch(tx, TESTER, "secretive", {"key": "secretive", "arg_schema": schema})
    secret = "a-long-enough-password"  # noqa: S105
    job_id = await given.queued_job(
        tx, definition="secretive", payload={"password": secret}, tags=(f"of {secret}",)
    )

    with pytest.raises(JobNotEditable, match="holds one of its secrets"):
        await _edit(tx, job_id, payload={"password": "quite another one"})


# Keys


async def test_the_key_follows_the_payload(tx: Tx) -> None:
    await _keyed(tx)
    running, held = await _of_customer(tx, "a"), await _of_customer(tx, "a")
    assert await _claim(tx, 2) == [running]
    assert await _place(tx, held) == "held"

    await _edit(tx, held, payload={"customer": "b"})

    assert await _claim(tx) == [held]


async def test_a_job_that_its_key_holds_back_stays_there_with_its_new_priority(tx: Tx) -> None:
    await _keyed(tx)
    running, *held = [await _of_customer(tx, "a") for _ in range(3)]
    assert await _claim(tx, 3) == [running]

    await _edit(tx, held[1], priority=-1, payload={"customer": "a", "note": 1})

    assert await _place(tx, held[1]) == "held"
    assert await _claim(tx) == []


async def test_a_job_that_leaves_its_key_lets_the_next_one_go(tx: Tx) -> None:
    await _keyed(tx)
    first, second = await _of_customer(tx, "a"), await _of_customer(tx, "a")
    assert await _claim(tx, 2) == [first]
    third = await _of_customer(tx, "a")
    await tx.run("delete from fairlead.leases")  # as after the end of the first
    await tx.run("delete from fairlead.job_records where id = %s", [first])

    await edit_job.edit(tx, TESTER, given.catalog(), third, JobEdit(payload={"customer": "b"}))

    assert await _place(tx, second) == "ready"


async def test_an_edit_to_a_full_key_is_refused_where_new_jobs_are_dropped(tx: Tx) -> None:
    await _keyed(tx, strategy="drop_new")
    first, second = await _of_customer(tx, "a"), await _of_customer(tx, "b")

    with pytest.raises(JobNotEditable, match="key"):
        await _edit(tx, second, payload={"customer": "a"})

    assert await stored.list_inconsistencies(tx) == []
    assert set(await _claim(tx, 2)) == {first, second}


async def test_an_edit_replaces_the_waiting_jobs_of_its_new_key(tx: Tx) -> None:
    await _keyed(tx, strategy="replace_queued")
    first, second = await _of_customer(tx, "a"), await _of_customer(tx, "b")

    await _edit(tx, second, payload={"customer": "a"})

    assert (await jobs.show_job(tx, TESTER, first))[0].status is JobStatus.CANCELED
    assert await _claim(tx, 2) == [second]


async def test_a_suspect_stays_alone(tx: Tx) -> None:
    job_id = await given.queued_job(tx)
    await given.wait_again(tx, alone=True)

    await _edit(tx, job_id, priority=2, delay=0)

    assert await given.suspects(tx) == [job_id]


async def test_the_host_follows_the_payload(tx: Tx) -> None:
    tenant = (await tenants.get_ids(tx, [TENANT]))[TENANT]
    at = [await hosts.add(tx, TESTER, tenant_id=tenant, name=name) for name in ("rack-1", "rack-2")]
    for one, name in zip(at, ("web-1", "web-2"), strict=True):
        await hosts.add_resource(tx, TESTER, tenant_id=tenant, host_id=one.id, kind="server", name=name)
    await definitions.patch(
        tx, TESTER, "deploy", {"key": "deploy", "kind": "host", "resource_pointer": "/on"}
    )
    job_id = await given.queued_job(tx, definition="deploy", payload={"on": "web-1"})
    assert (await jobs.show_job(tx, TESTER, job_id))[0].host_id == at[0].id

    edited = await _edit(tx, job_id, payload={"on": "web-2"})

    assert edited.host_id == at[1].id
