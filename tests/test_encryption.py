"""Jobs with sealed secrets: the database has none in plain form, and only an attempt gets them."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Debounce, Fairlead, Settings, sync
from fairlead.actions import encryption
from fairlead.errors import (
    EncryptionKeyMissing,
    EncryptionKeyUnavailable,
    JobFailed,
    PayloadInvalid,
    SecretsRequired,
)
from fairlead.model.job import JobStatus, NewJob
from tests.acting import act
from tests.databases import find_in_database
from tests.encrypted_app import (
    VALUE,
    App,
    app,
    build_app,
    enable,
    key,
    own,
    read_payload,
    rotate,
    write_payload,
)
from tests.given import OTHER, TENANT, TESTER
from tests.tables import each_case
from tests.waiting import SECONDS

__all__ = ["app", "key", "own"]


async def test_a_job_gets_the_secret_and_the_database_does_not(app: App, database_url: str) -> None:
    fl, seen = app

    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE, "amount": 3})
    stored = read_payload(database_url, job.id)
    shown = await fl.read(job.id)
    await fl.tick()

    assert stored["token"].keys() == {"$sealed"}
    assert stored["amount"] == 3
    assert shown.payload == {"token": "[redacted]", "amount": 3}
    assert seen == [VALUE]
    assert await job.result(timeout=SECONDS) == {"said": "paid 3 with [redacted]"}
    assert find_in_database(database_url, VALUE) == []


async def test_every_way_of_the_library_seals(app: App, own: Settings, database_url: str) -> None:
    fl, seen = app
    payload = {"token": VALUE}
    for _ in range(2):  # the first one learns the definition
        await fl.enqueue("pay", tenant=TENANT, payload=payload)
    many = [NewJob(definition="pay", tenant=tenant, payload=payload) for tenant in (TENANT, OTHER) * 3]
    await fl.enqueue_many(many)
    await fl.enqueue("pay", tenant=OTHER, payload=payload, debounce=Debounce(key="k", seconds=1))
    await fl.enqueue("pay", tenant=OTHER, payload=payload, debounce=Debounce(key="k", seconds=1))
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        await fl.enqueue("pay", tenant=TENANT, payload=payload, tx=connection)
        await fl.enqueue_many([NewJob(definition="pay", tenant=OTHER, payload=payload)], tx=connection)

    def enqueue_in_a_thread() -> None:
        with sync.Fairlead(settings=own) as blocking, psycopg.connect(database_url) as connection:
            blocking.enqueue("pay", tenant=TENANT, payload=payload, tx=connection)
            blocking.enqueue("pay", tenant=TENANT, payload=payload)

    await asyncio.to_thread(enqueue_in_a_thread)
    await asyncio.gather(*(fl.enqueue("pay", tenant=TENANT, payload=payload) for _ in range(20)))

    assert find_in_database(database_url, VALUE) == []
    async with asyncio.timeout(SECONDS):
        while len(seen) < 33:
            await fl.tick()
    assert set(seen) == {VALUE}
    assert find_in_database(database_url, VALUE) == []


async def test_a_failure_masks_the_secret_and_a_retry_still_has_it(app: App, database_url: str) -> None:
    fl, seen = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE, "fails": True}, max_attempts=1)
    await fl.tick()
    with pytest.raises(JobFailed):
        await job.result(timeout=SECONDS)

    await fl.retry(job.id)
    await fl.tick()

    assert seen == [VALUE, VALUE]
    found, attempts = await fl.show(job.id)
    assert "[redacted] was refused" in str(found.error)
    assert VALUE not in str((found, attempts))
    assert find_in_database(database_url, VALUE) == []


async def test_an_edit_keeps_hidden_secrets_and_seals_new_ones(app: App, database_url: str) -> None:
    fl, seen = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE, "amount": 1}, delay=3600)
    shown = (await fl.read(job.id)).payload

    await fl.edit(job.id, payload=shown, priority=5)
    with pytest.raises(SecretsRequired):
        await fl.edit(job.id, payload={**shown, "amount": 2})
    await fl.edit(job.id, payload={"token": f"{VALUE}-new", "amount": 2}, delay=0)
    assert read_payload(database_url, job.id)["token"].keys() == {"$sealed"}
    await fl.tick()

    assert seen == [f"{VALUE}-new"]
    assert find_in_database(database_url, VALUE) == []


async def test_a_retry_with_the_payload_as_shown_keeps_the_secret(app: App) -> None:
    fl, seen = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE, "fails": True}, max_attempts=1)
    await fl.tick()

    await fl.retry(job.id, payload=(await fl.read(job.id)).payload)
    await fl.tick()

    assert seen == [VALUE, VALUE]


async def test_sealed_values_cannot_be_moved_or_changed(app: App, database_url: str) -> None:
    fl, seen = app
    jobs = [
        await fl.enqueue("pay", tenant=tenant, payload={"token": VALUE}) for tenant in (TENANT, TENANT, OTHER)
    ]
    stored = [read_payload(database_url, job.id) for job in jobs]
    sealed = stored[0]["token"]["$sealed"]
    write_payload(database_url, jobs[1].id, stored[0])
    write_payload(database_url, jobs[2].id, stored[0])
    write_payload(database_url, jobs[0].id, {"token": {"$sealed": sealed[:-4]}})

    await fl.tick()

    assert seen == []
    for job in jobs:
        found, attempts = await fl.show(job.id)
        assert found.status is JobStatus.FAILED
        assert found.error is not None
        assert found.error["type"] == "SealBroken"
        assert sealed[40:60] not in str((found, attempts))


async def test_a_payload_that_pretends_to_be_sealed_is_refused(app: App, database_url: str) -> None:
    fl, _ = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})

    with pytest.raises(PayloadInvalid, match="only Fairlead seals"):
        await fl.enqueue("pay", tenant=TENANT, payload=read_payload(database_url, job.id))


@each_case(
    "options",
    [{"correlation_id": f"x {VALUE}"}, {"tags": ["a", VALUE]}, {"dedupe_key": VALUE}],
)
async def test_a_secret_beside_the_payload_is_refused(app: App, options: dict[str, Any]) -> None:
    fl, _ = app

    with pytest.raises(PayloadInvalid, match="holds a secret") as refused:
        await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, **options)
    fields: Any = {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }
    with pytest.raises(PayloadInvalid, match="holds a secret"):
        await fl.enqueue_many([NewJob(definition="pay", tenant=TENANT, payload={"token": VALUE}, **fields)])

    assert VALUE not in refused.value.message


@pytest.mark.usefixtures("app")
async def test_without_the_key_enqueues_are_refused(settings: Settings, database_url: str) -> None:
    """Jobs wait for a worker that has it: test_encryption_recovery.py."""
    without, _ = build_app(settings)
    async with without:
        with pytest.raises(EncryptionKeyMissing, match="encryption_key"):
            await without.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
        with pytest.raises(EncryptionKeyMissing):
            await without.enqueue_many([NewJob(definition="pay", tenant=TENANT, payload={"token": VALUE})])
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            with pytest.raises(EncryptionKeyMissing):
                await without.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, tx=connection)


async def test_a_closed_fairlead_with_a_key_says_that_it_has_to_be_opened(
    app: App, own: Settings, database_url: str
) -> None:
    closed, _ = build_app(own)
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        with pytest.raises(EncryptionKeyUnavailable, match="open it"):
            await closed.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, tx=connection)


async def reseal(fl: Fairlead, *, batches: int = 1000) -> int:
    """Seal stored secrets with the current keys: how many rows were changed."""
    changed, after = await fl.database.transact(lambda tx: encryption.reseal_texts(tx, TESTER)), None
    for _ in range(batches):
        begin = after
        batch = await fl.database.transact(
            lambda tx, begin=begin: encryption.reseal_jobs(tx, TESTER, after=begin, limit=2)  # type: ignore[misc]
        )
        changed += batch.changed
        if batch.after is None:
            break
        after = batch.after
    return changed


def find_key_ids(url: str, jobs: list[UUID]) -> set[str]:
    return {read_payload(url, job)["token"]["$sealed"].split(":")[2] for job in jobs}


async def test_a_rotation_of_data_keys_seals_everything_anew_and_retires_the_old_ones(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = app
    jobs = [(await fl.enqueue("pay", tenant=TENANT, payload={"token": f"{VALUE}-{n}"})).id for n in range(5)]
    old = find_key_ids(database_url, jobs)

    assert await rotate(fl, monkeypatch, lambda: reseal(fl)) == 5

    new = find_key_ids(database_url, jobs)
    assert len(new) == 1
    assert not new & old
    await fl.tick()
    assert sorted(seen) == [f"{VALUE}-{n}" for n in range(5)]
    assert find_in_database(database_url, VALUE) == []


async def test_a_rotation_that_was_killed_goes_on_and_makes_no_further_key(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = app
    jobs = [(await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})).id for _ in range(5)]
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    await fl.database.transact(lambda tx: encryption.renew_keys(tx, TESTER))
    assert await reseal(fl, batches=1) == 2
    assert len(find_key_ids(database_url, jobs)) == 2
    assert await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER)) == (1, 1)

    assert await fl.database.transact(lambda tx: encryption.renew_keys(tx, TESTER)) == (1, 1)
    assert await reseal(fl) == 3
    retired, used = await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER))

    assert (retired, used) == (2, 0)
    assert len(find_key_ids(database_url, jobs)) == 1
    await fl.tick()
    assert seen == [VALUE] * 5


async def test_two_rotations_at_once_beside_edits_and_workers_lose_nothing(
    app: App, own: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = app
    jobs = [(await fl.enqueue("pay", tenant=TENANT, payload={"token": f"{VALUE}-{n}"})).id for n in range(20)]
    other, seen_other = build_app(own)

    async def edit() -> None:
        for n, job in enumerate(jobs[:10]):
            await fl.edit(job, payload={"token": f"{VALUE}-edited-{n}"})

    async with other:
        for one in (fl, other):
            await one.database.transact(lambda tx: encryption.renew_keys(tx, TESTER))
        await asyncio.gather(reseal(fl), reseal(other), edit())
        await asyncio.gather(reseal(fl), other.tick(5), fl.tick(5))
        await reseal(fl)
        async with asyncio.timeout(SECONDS):
            while len(seen) + len(seen_other) < 20:
                await fl.tick(100)

    assert sorted(seen + seen_other) == sorted(
        [f"{VALUE}-edited-{n}" for n in range(10)] + [f"{VALUE}-{n}" for n in range(10, 20)]
    )
    assert find_in_database(database_url, VALUE) == []


async def test_a_key_that_is_still_used_does_not_retire(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    fl, _ = app
    await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
    await fl.database.transact(lambda tx: encryption.renew_keys(tx, TESTER))

    assert await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER)) == (0, 0)
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    assert await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER)) == (1, 1)


async def test_a_new_master_key_wraps_the_data_keys_and_the_old_one_can_go(
    app: App, settings: Settings, own: Settings, tmp_path: Path
) -> None:
    fl, _ = app
    await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
    (tmp_path / "new.key").write_text(os.urandom(32).hex())
    new = replace(settings, encryption_key=f"file:{tmp_path / 'new.key'}")
    both, _ = build_app(replace(new, encryption_old_keys=(str(own.encryption_key),)))
    async with both:
        assert await both.database.transact(lambda tx: encryption.rewrap_keys(tx, TESTER)) == (2, 0)
        assert await both.database.transact(lambda tx: encryption.rewrap_keys(tx, TESTER)) == (0, 0)

    only, seen = build_app(new)
    async with only:
        await only.tick()
    assert seen == [VALUE]


async def test_what_was_stored_before_encryption_is_sealed_afterwards(
    own: Settings, database_url: str
) -> None:
    fl, seen = build_app(own)
    async with fl:
        await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
        with psycopg.connect(database_url) as connection:
            connection.execute("select fairlead.enqueue(%s, 'pay', %s)", [OTHER, Jsonb({"token": VALUE})])
        await enable(fl)
        assert find_in_database(database_url, VALUE) == ["job_records"]

        assert await reseal(fl) == 2
        assert await reseal(fl) == 0

        assert find_in_database(database_url, VALUE) == []
        await fl.tick()
    assert seen == [VALUE] * 2


async def test_rotations_are_audited_without_keys(
    app: App, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, _ = app
    monkeypatch.setattr(encryption, "CURRENT_SECONDS", 0.0)
    for change in (encryption.renew_keys, encryption.retire_keys):
        await act(fl.database, change, TESTER)

    with psycopg.connect(database_url) as connection:
        found = [
            row[0]
            for row in connection.execute("select action from fairlead.audit_log where action like '%key%'")
        ]
    assert sorted(found) == ["data_keys_renewed", "data_keys_retired"]


class FailingWrapper:
    """A KMS that wraps by turning bits over, and that may be down."""

    is_down = False

    async def wrap(self, key: bytes, context: dict[str, str]) -> bytes:
        return context["key"].encode() + bytes(255 - one for one in key)

    async def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        if self.is_down:
            raise ConnectionError(f"no answer for {wrapped!r}")
        assert wrapped.startswith(context["key"].encode())
        return bytes(255 - one for one in wrapped.removeprefix(context["key"].encode()))


kms = FailingWrapper()


async def test_jobs_wait_while_the_kms_is_down_and_no_attempt_is_charged(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    own = replace(settings, encryption_key=f"call:{__name__}:kms")
    fl, _ = build_app(own)
    async with fl:
        await enable(fl)
        job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, max_attempts=1)
    assert find_in_database(database_url, VALUE) == []

    again, seen = build_app(own)
    async with again:
        monkeypatch.setattr(kms, "is_down", True)
        await again.tick()
        waiting = await again.read(job.id)
        assert waiting.status is JobStatus.QUEUED
        assert waiting.failure_count == 0
        assert "unwrap raised ConnectionError" in str(waiting.last_error)
        assert "no answer" not in str(waiting.last_error)
        with pytest.raises(EncryptionKeyUnavailable):
            await again.enqueue("pay", tenant=TENANT, payload={"token": VALUE})

        monkeypatch.setattr(kms, "is_down", False)
        await again.edit(job.id, delay=0)
        await again.tick()
    assert seen == [VALUE]


async def test_jobs_from_before_encryption_still_run(own: Settings) -> None:
    fl, seen = build_app(own)
    async with fl:
        await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
        await enable(fl)
        await fl.tick()

    assert seen == [VALUE]
