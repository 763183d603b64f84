"""Encryption when something is missing or killed: keys, rotations, moves, and what operators see of it."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from fairlead import Settings
from fairlead.actions import doctor, tenant_moves
from fairlead.errors import MoveRefused
from fairlead.model.finding import Finding, Verdict
from fairlead.model.job import JobStatus
from fairlead.model.reason import ReasonCode
from fairlead.store import sealing
from tests.databases import find_in_database
from tests.encrypted_app import VALUE, App, app, build_app, enable, key, own
from tests.given import TENANT
from tests.processes import FAIRLEAD, environment, started

__all__ = ["app", "key", "own"]

CLAIMS = 4
APPLICATION = f"""
from typing import Annotated
from fairlead import Context, Fairlead, Secret

fl = Fairlead()

@fl.job(key="pay", max_attempts=1)
async def pay(ctx: Context, token: Annotated[str, Secret()]) -> None:
    assert token == "{VALUE}"
    ctx.log.info("paying", text="with " + token)
    raise ValueError(token + " was refused")
"""


async def test_claims_without_the_key_burn_no_attempt_and_why_says_so(app: App, settings: Settings) -> None:
    fl, seen = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE}, max_attempts=1)
    without, seen_without = build_app(settings)
    async with without:
        for _ in range(CLAIMS):
            await without.tick()
            [reason, *_] = (await without.why(job.id)).reasons
            assert reason.code is ReasonCode.ENCRYPTION_KEY
            assert "encryption_key" in reason.message
            assert VALUE not in str(reason)
            await without.edit(job.id, delay=0)
        waiting, attempts = await without.show(job.id)
    assert seen_without == []
    assert {one.status for one in attempts} == {"released"}
    assert "no master key" in str(waiting.last_error)
    assert (waiting.status, waiting.failure_count) == (JobStatus.QUEUED, 0)

    await fl.tick()
    assert seen == [VALUE]
    assert [one.code for one in (await fl.why(job.id)).reasons] == [ReasonCode.TERMINAL]


async def examine(url: str, settings: Settings) -> Finding:
    """What the doctor finds about encryption."""
    [found] = [one async for one in doctor.examine(url, settings) if one.check == "encryption"]
    return found


async def test_the_doctor_says_what_is_encrypted_and_which_key_is_missing(
    settings: Settings, own: Settings, database_url: str, tmp_path: Path
) -> None:
    assert (await examine(database_url, settings)).verdict is Verdict.OK
    ready = await examine(database_url, own)
    assert (ready.verdict, "fairlead keys enable" in ready.advice) == (Verdict.WARN, True)

    fl, _ = build_app(own)
    async with fl:
        await enable(fl)
    assert (await examine(database_url, own)).verdict is Verdict.OK
    lacking = await examine(database_url, settings)
    assert (lacking.verdict, "lacks the master key" in lacking.detail) == (Verdict.FAIL, True)

    (tmp_path / "new.key").write_text("ab" * 32)
    both = replace(
        own, encryption_key=f"file:{tmp_path / 'new.key'}", encryption_old_keys=(str(own.encryption_key),)
    )
    rotating = await examine(database_url, both)
    assert (rotating.verdict, "fairlead keys rotate" in rotating.advice) == (Verdict.WARN, True)


async def test_a_tenant_with_sealed_secrets_only_moves_to_a_cell_with_the_same_master_key(app: App) -> None:
    fl, _ = app
    await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
    async with fl.database.transaction() as tx, fl.database.transaction() as target:
        tenant_id = (await sealing.find_current_key(tx, TENANT)).tenant_id
        assert tenant_id is not None
        await tenant_moves.require_same_keys(tx, target, tenant_id)

        await target.run("update fairlead.tenant_keys set master_key = 'other' where tenant_id is null")
        with pytest.raises(MoveRefused, match="the other cell has other"):
            await tenant_moves.require_same_keys(tx, target, tenant_id)
        await target.run("delete from fairlead.tenant_keys where tenant_id is null")
        with pytest.raises(MoveRefused, match="not enabled there"):
            await tenant_moves.require_same_keys(tx, target, tenant_id)
        await target.run("update fairlead.tenant_keys set master_key = master_key")


@pytest.mark.thorough
async def test_the_log_of_a_worker_has_no_secret(
    app: App, own: Settings, database_url: str, tmp_path: Path
) -> None:
    fl, _ = app
    job = await fl.enqueue("pay", tenant=TENANT, payload={"token": VALUE})
    (tmp_path / "shop.py").write_text(APPLICATION)
    env = {
        "FAIRLEAD_DATABASE_URL": database_url,
        "FAIRLEAD_ENCRYPTION_KEY": str(own.encryption_key),
        "PYTHONPATH": f"{tmp_path}:{environment().get('PYTHONPATH', '')}",
    }
    with started([FAIRLEAD, "--verbose", "worker", "shop:fl"], env=env, cwd=str(tmp_path)) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if str(job.id) in line and "was refused" in line:
                break
        process.send_signal(signal.SIGTERM)
        lines += process.stdout.readlines()
        process.wait()

    assert "[redacted] was refused" in "".join(lines)
    assert VALUE not in "".join(lines)
    assert find_in_database(database_url, VALUE) == []
