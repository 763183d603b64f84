"""Encryption that is broken for one tenant: its work waits, and that of other tenants goes on."""

import asyncio
import sys
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

import pytest

from fairlead import Context, Fairlead, NewJob, Secret, Settings
from fairlead.actions import tenants
from fairlead.db.database import Database
from fairlead.errors import EncryptionKeyUnavailable
from fairlead.keys import keyring, master
from fairlead.model.job import JobStatus
from fairlead.runtime.trigger_loops import Dispatcher, Scheduler
from fairlead.store import sealing
from tests import given
from tests.encrypted_app import VALUE, App, app
from tests.given import OTHER, TENANT, TESTER
from tests.waiting import SECONDS

__all__ = ["app"]

POLL = 600.0
THIRD = "hooli"


class Kms:
    """A KMS that wraps by turning bits over. For some tenants it is down, or does not answer."""

    def __init__(self) -> None:
        self.down = set[str]()
        self.hanging = set[str]()
        self.calls = Counter[str]()
        # how many calls hang, and how many did at once
        self.waiting = self.most_waiting = 0

    async def wrap(self, key: bytes, context: dict[str, str]) -> bytes:
        return await self.unwrap(key, context)

    async def unwrap(self, wrapped: bytes, context: dict[str, str]) -> bytes:
        tenant = context["tenant"]
        self.calls[tenant] += 1
        if tenant in self.down:
            raise ConnectionError
        if tenant in self.hanging:
            self.waiting += 1
            self.most_waiting = max(self.most_waiting, self.waiting)
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return bytes(255 - one for one in wrapped)


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> Kms:
    """The KMS of this test."""
    made = Kms()
    monkeypatch.setattr(sys.modules[__name__], "wrapper", made, raising=False)
    return made


@pytest.fixture
def own(settings: Settings, kms: Kms) -> Settings:
    return replace(settings, encryption_key=f"call:{__name__}:wrapper")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of the KMS may take a moment only, and any failure of it was slow."""
    monkeypatch.setattr(master, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(keyring, "SLOW_SECONDS", 0.0)


SCHEMA = {"type": "object", "properties": {"token": {"type": "string", "x-secret": True}}}
RUN = {"workflow": "billing", "input": {"token": VALUE}}


def build(settings: Settings) -> tuple[Fairlead, list[Any]]:
    """An application whose functions get a secret, and the tenants for which they ran."""
    fl, seen = Fairlead(settings=settings), list[Any]()

    @fl.job(key="pay")
    async def pay(ctx: Context, token: Annotated[str, Secret()]) -> None:
        assert token == VALUE
        seen.append(ctx.tenant)

    @fl.job(key="prepare")
    async def prepare(ctx: Context) -> None:
        pass

    @fl.job(key="outer", durable=True)
    async def outer(ctx: Context) -> None:
        await ctx.call("ENGINE_RUN", RUN)

    flow = fl.workflow("billing", input_schema=SCHEMA)
    flow.step(
        "pay", "pay", {"token": "{{input.token}}"}, after=flow.step("prepare", "prepare", {}, expires_in=3600)
    )
    return fl, seen


async def find_id(fl: Fairlead, tenant: str) -> str:
    return str(await given.tenant_id(fl.database, tenant))


def forget_keys(fl: Fairlead) -> None:
    """As a process that was started again."""
    ring = fl.database.keyring
    ring._keys.clear()
    ring._current.clear()


async def break_key(fl: Fairlead, kms: Kms, tenant: str = TENANT) -> None:
    """Let no key of this tenant be had."""
    kms.down.add(await find_id(fl, tenant))
    forget_keys(fl)


async def repeat(loop: Dispatcher | Scheduler) -> None:
    """All rounds that there are to do now."""
    async with asyncio.timeout(SECONDS):
        while await loop() == 0:
            pass


# A KMS that hangs


async def open_key(database: Database, tenant: str) -> UUID:
    async with database.transaction() as tx:
        return (await sealing.find_current_key(tx, tenant)).id


@pytest.mark.usefixtures("impatient")
async def test_a_kms_that_does_not_answer_is_asked_once_and_then_again_after_a_while(
    app: App, kms: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, _ = app
    await fl.enqueue_many(
        [NewJob(definition="pay", tenant=one, payload={"token": VALUE}) for one in (TENANT, OTHER)]
    )
    forget_keys(fl)
    tenant_id = await find_id(fl, TENANT)
    kms.hanging.add(tenant_id)
    kms.calls.clear()

    for _ in range(3):
        with pytest.raises(EncryptionKeyUnavailable, match="unwrap did not answer within"):
            await open_key(fl.database, TENANT)
        await open_key(fl.database, OTHER)
    assert kms.calls[tenant_id] == 1

    kms.hanging.clear()
    monkeypatch.setattr(keyring, "FAILED_SECONDS", 0.0)
    fl.database.keyring._failed.clear()
    assert await open_key(fl.database, TENANT)


@pytest.mark.usefixtures("impatient")
async def test_a_claim_waits_once_for_the_keys_of_all_its_tenants(app: App, kms: Kms) -> None:
    fl, seen = app
    async with fl.database.transaction() as tx:
        await tenants.add(tx, TESTER, slug=THIRD)
    payload = {"token": VALUE}
    for tenant in (TENANT, OTHER, THIRD) * 2:
        await fl.enqueue("pay", tenant=tenant, payload=payload)
    forget_keys(fl)
    kms.hanging = {await find_id(fl, tenant) for tenant in (TENANT, THIRD)}
    kms.calls.clear()

    await fl.tick()

    assert seen == [OTHER] * 2
    assert kms.most_waiting == 2
    assert set(kms.calls.values()) == {1}
    waiting = [job for job in await given.all_jobs(fl.database) if job.tenant != OTHER]
    assert {(job.status, job.failure_count) for job in waiting} == {(JobStatus.QUEUED, 0)}
    assert "did not answer" in str(waiting[0].last_error)
