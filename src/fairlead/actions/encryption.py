"""Encryption of secrets at rest: turn it on, and rotate its keys."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.errors import DefinitionInvalid, Fault, InvalidInput
from fairlead.keys.keyring import CURRENT_SECONDS, STATE_SECONDS
from fairlead.model.access import Permission, Principal
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.pointers import list_secret_pointers
from fairlead.store import (
    approvals,
    audit,
    definitions,
    resealing,
    sealed_runs,
    sealed_steps,
    sealed_triggers,
    sealed_workflows,
    sealing,
    tenants,
)
from fairlead.store.resealing import NIL, Cursor, ResealedBatch, StoredKey
from fairlead.store.sealed_steps import ResealedSteps, SecretResult

BATCH = 500


class _Reseal(Protocol):
    async def __call__(
        self, tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int
    ) -> ResealedBatch: ...


# Documents with sealed parts, by the name that is shown.
DOCUMENTS: Mapping[str, _Reseal] = {
    "triggers": sealed_triggers.reseal,
    "workflows": sealed_workflows.reseal,
    "steps of runs": sealed_workflows.reseal_steps,
    "inputs of runs": sealed_runs.reseal,
    "answers to approvals": approvals.hide_answers,
}


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A data key, without its content."""

    id: UUID
    # None: the platform's
    tenant: str | None
    # current, superseded (values may still be sealed with it) or retired
    status: str
    master_key: str
    # whether this process can unwrap it
    is_readable: bool
    created_at: datetime


class KeyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the database encrypts secrets, with which master key this process wraps, and all data keys."""

    enabled: bool
    master_key: str | None
    keys: list[KeyView]


async def enable(tx: Tx, principal: Principal) -> bool:
    """Seal secrets that are stored from now on; False if they are already. It cannot be turned off again.

    EncryptionKeyMissing if this process has no master key: every process that stores or runs jobs with secrets needs it.
    DefinitionInvalid if a definition limits or places its jobs by a secret field, which the database could not read any more.
    """
    principal.require(Permission.MANAGE_SYSTEM)
    master = tx.keyring.require_master()
    if not await sealing.enable(tx):
        return False
    await _refuse_secret_pointers(tx)  # afterwards: no definition is registered any more without this check
    await _audit(tx, principal, "encryption_enabled", {"master_key": master.id})
    return True


async def _refuse_secret_pointers(tx: Tx) -> None:
    found = {
        one.key: faults for one in await definitions.list_all(tx) if (faults := list_secret_pointers(one))
    }
    if not found:
        return
    faults = [Fault(f"{key}.{one.path}", one.message) for key, several in found.items() for one in several]
    raise DefinitionInvalid(
        f"Secrets cannot be encrypted yet. {len(found)} definitions limit or place their jobs by a secret field, which the "
        f"database could not read any more: {'; '.join(f'{path} {why}' for path, why in faults)}. Point them at another "
        "field, such as the name or a hash of the secret.",
        faults,
    )


async def list_keys(tx: Tx, principal: Principal, *, tenant: str | None = None) -> KeyStatus:
    """All data keys, or those of a tenant."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    ring = tx.keyring
    return KeyStatus(
        enabled=await sealing.is_on(tx),
        master_key=None if ring.current_master is None else ring.current_master.id,
        keys=[
            KeyView(
                id=key.id,
                tenant=key.tenant,
                status="current" if key.is_current else "superseded" if key.is_waiting else "retired",
                master_key=key.master_key,
                is_readable=key.master_key in ring.masters,
                created_at=key.created_at,
            )
            for key in await resealing.list_keys(tx, tenant_id)
        ],
    )


async def rewrap_keys(tx: Tx, principal: Principal, *, limit: int = BATCH) -> tuple[int, int]:
    """Wrap data keys with the current master key. How many were, and how many are left: call it until none is."""
    principal.require(Permission.MANAGE_SYSTEM)
    master = tx.keyring.require_master()
    left = [key for key in await resealing.list_keys(tx) if key.master_key != master.id]
    done = sum([await resealing.rewrap(tx, key) for key in left[:limit]])
    if done:
        await _audit(tx, principal, "keys_rewrapped", {"master_key": master.id, "count": done})
    return done, max(0, len(left) - limit)


async def renew_keys(tx: Tx, principal: Principal, *, tenant: str | None = None) -> tuple[int, int]:
    """Give each owner of a data key a new one. How many were made, and how many owners have an unfinished rotation:
    these get none, since their values are not all sealed with the last one yet.
    """
    tenant_id = await _find_tenant(tx, principal, tenant)
    keys = await resealing.list_keys(tx, tenant_id)
    unfinished = {key.tenant_id for key in keys if key.is_waiting}
    made = [
        await resealing.renew_key(tx, key)
        for key in keys
        if key.is_current and key.tenant_id not in unfinished
    ]
    if any(made):
        await _audit(tx, principal, "data_keys_renewed", {"count": sum(made), "tenant": tenant})
    return sum(made), len(unfinished)


async def reseal_jobs(
    tx: Tx,
    principal: Principal,
    *,
    after: Cursor | None = None,
    tenant: str | None = None,
    limit: int = BATCH,
) -> ResealedBatch:
    """Seal the next payloads whose secrets are in plain form, or sealed with an earlier key."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    return await resealing.reseal_payloads(tx, after=after or NIL, tenant_id=tenant_id, limit=limit)


async def reseal_steps(
    tx: Tx,
    principal: Principal,
    *,
    after: SecretResult | None = None,
    tenant: str | None = None,
    limit: int = BATCH,
) -> ResealedSteps:
    """Seal the next results of secret steps that are in plain form, or sealed with an earlier key."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    return await sealed_steps.reseal(tx, after=after, tenant_id=tenant_id, limit=limit)


async def reseal_documents(
    tx: Tx,
    principal: Principal,
    documents: str,
    *,
    after: Cursor | None = None,
    tenant: str | None = None,
    limit: int = BATCH,
) -> ResealedBatch:
    """Seal secrets of the next documents of one of DOCUMENTS that are in plain form, or sealed with an earlier key."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    return await DOCUMENTS[documents](tx, after=after or NIL, tenant_id=tenant_id, limit=limit)


async def reseal_texts(tx: Tx, principal: Principal, *, tenant: str | None = None) -> int:
    """Seal the secrets of hooks and second factors that are in plain form, or sealed with an earlier key. How many were."""
    return await resealing.reseal_texts(tx, tenant_id=await _find_tenant(tx, principal, tenant))


async def find_wait_for_processes(tx: Tx, principal: Principal) -> float:
    """The seconds until every process has noticed that the database encrypts, and stores no secret in plain form."""
    principal.require(Permission.MANAGE_SYSTEM)
    if not await sealing.is_on(tx):
        raise InvalidInput(
            "This database does not encrypt secrets: run `fairlead keys enable` first.",
            [Fault("", "not enabled")],
        )
    return max(0.0, 2 * STATE_SECONDS - await sealing.find_age(tx))


async def find_wait(tx: Tx, principal: Principal, *, tenant: str | None = None) -> float:
    """The seconds until no process seals with a superseded key any more."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    waits = [
        2 * CURRENT_SECONDS - (key.superseded_for or 0.0)
        for key in await resealing.list_keys(tx, tenant_id)
        if key.is_waiting
    ]
    return max(0.0, *waits) if waits else 0.0


async def retire_keys(tx: Tx, principal: Principal, *, tenant: str | None = None) -> tuple[int, int]:
    """Retire superseded keys with which no stored value is sealed. How many were retired, and how many are still used."""
    tenant_id = await _find_tenant(tx, principal, tenant)
    waiting = [key for key in await resealing.list_keys(tx, tenant_id) if _can_retire(key)]
    retired = sum([await resealing.retire(tx, key) for key in waiting])
    if retired:
        await _audit(tx, principal, "data_keys_retired", {"count": retired, "tenant": tenant})
    return retired, len(waiting) - retired


def _can_retire(key: StoredKey) -> bool:
    return key.is_waiting and (key.superseded_for or 0.0) >= 2 * CURRENT_SECONDS


async def _find_tenant(tx: Tx, principal: Principal, tenant: str | None) -> UUID | None:
    principal.require(Permission.MANAGE_SYSTEM)
    if tenant is None:
        return None
    found = await tenants.get_ids(tx, [tenant])
    if tenant not in found:
        raise unknown_tenant(tenant)
    return found[tenant]


async def _audit(tx: Tx, principal: Principal, action: str, details: dict[str, Any]) -> None:
    await audit.write(tx, actor=principal.actor, action=action, resource_type="system", details=details)
