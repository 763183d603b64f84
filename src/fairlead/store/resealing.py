"""Rotation of keys: wrap data keys with another master key, and seal stored values with another data key."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import SealBroken
from fairlead.keys.master import build_context
from fairlead.keys.sealed import DataKey, is_sealed, parse_sealed, seal_text
from fairlead.model.secrets.sealed_payload import list_key_ids, list_places
from fairlead.store import sealing
from fairlead.store.hooks import describe_secret as describe_hook_secret
from fairlead.store.second_factors import describe_secret as describe_second_factor

sql = queries_beside(__file__)

NIL = UUID(int=0)

# The last row of a batch: its id, or those of a step of a run.
Cursor = UUID | tuple[UUID, int]


class StoredKey(msgspec.Struct, frozen=True):
    """A data key as it is stored. Without a tenant it is the platform's."""

    id: UUID
    tenant_id: UUID | None
    tenant: str | None
    wrapped: bytes
    master_key: str
    created_at: datetime
    superseded_at: datetime | None
    retired_at: datetime | None
    # seconds
    superseded_for: float | None

    @property
    def is_current(self) -> bool:
        return self.superseded_at is None

    @property
    def is_waiting(self) -> bool:
        """Whether values may still be sealed with it although there is a newer key."""
        return self.superseded_at is not None and self.retired_at is None


class _Payload(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: UUID
    definition: str
    payload: Any
    secret_paths: tuple[str, ...]


class ResealedBatch(msgspec.Struct, frozen=True):
    """What one batch has done: how many rows it read and changed, and where the next one begins; None: this was the last."""

    read: int
    changed: int
    after: Cursor | None
    # values that were changed by others, and cannot be opened
    broken: int = 0


async def list_keys(tx: Tx, tenant_id: UUID | None = None) -> list[StoredKey]:
    """The data keys of a tenant, or (None) all of them."""
    return await tx.all(StoredKey, sql.keys, {"tenant_id": tenant_id})


async def rewrap(tx: Tx, key: StoredKey) -> bool:
    """Wrap a data key with the current master key; False if another rotation was faster."""
    master, context = tx.keyring.require_master(), build_context(key.id, key.tenant_id)
    plain = await tx.keyring.require_master(key.master_key).unwrap(key.wrapped, context)
    values = {"id": key.id, "wrapped": await master.wrap(plain, context), "master_key": master.id}
    return bool(await tx.run(sql.rewrap, {**values, "was": key.master_key}))


async def renew_key(tx: Tx, key: StoredKey) -> bool:
    """Give the owner of a current key a new one; False if another rotation was faster."""
    if not await tx.values(sql.supersede, {"id": key.id}):
        return False
    await sealing.add_key(tx, key.tenant_id)
    tx.keyring.forget_current()
    return True


async def retire(tx: Tx, key: StoredKey) -> bool:
    """Mark a key as no longer needed, if no stored value was sealed with it; whether that is so."""
    [(is_used,)] = await tx.values(sql.is_used, {"mark": f"sealed:1:{key.id.hex}:"})
    if is_used:
        return False
    await tx.run(sql.retire, {"id": key.id})
    return True


async def reseal_payloads(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Seal secrets of the next payloads that are in plain form, or sealed with an earlier key."""
    rows = await tx.all(_Payload, sql.payloads, {"after": after, "tenant_id": tenant_id, "limit": limit})
    changed = broken = 0
    for row in rows:
        key = await sealing.find_current_key(tx, row.tenant_id)
        try:
            new = await _reseal_payload(tx, key, row)
        except SealBroken:
            broken += 1
            continue
        if new != row.payload:
            values = {"id": row.id, "old": json_text(row.payload), "new": json_text(new)}
            changed += await tx.run(sql.replace_payload, values)
    return ResealedBatch(len(rows), changed, rows[-1].id if len(rows) == limit else None, broken)


async def _reseal_payload(tx: Tx, key: DataKey, row: _Payload) -> Any:
    payload, paths = row.payload, list(row.secret_paths)
    if list_key_ids(payload) - {key.id}:
        # a field may have lost its mark, and stays sealed: its place is the path
        paths += list_places(payload)
        payload = await sealing.unseal_payload(
            tx, payload, tenant_id=row.tenant_id, definition=row.definition, job_id=row.id
        )
    return sealing.seal_for_job(key, payload, paths, definition=row.definition, job_id=row.id)


async def reseal_texts(tx: Tx, *, tenant_id: UUID | None) -> int:
    """Seal secrets of hooks and of second factors that are in plain form, or sealed with an earlier key. How many were."""
    changed = 0
    for query, replace, describe in (
        (sql.hook_secrets, sql.replace_hook_secret, describe_hook_secret),
        (sql.second_factors, sql.replace_second_factor, describe_second_factor),
    ):
        for row_id, owner, old in await tx.values(query, {"tenant_id": tenant_id}):
            new = await _reseal_text(tx, owner, describe(row_id), old)
            if new is not None:
                changed += await tx.run(replace, {"id": row_id, "old": old, "new": new})
    return changed


async def _reseal_text(tx: Tx, tenant_id: UUID | None, purpose: str, old: str) -> str | None:
    """The text sealed with the current key; None if it is already."""
    key = await sealing.find_current_key(tx, tenant_id)
    if is_sealed(old) and parse_sealed(old).key_id == key.id:
        return None
    return seal_text(key, tenant_id, purpose, await sealing.unseal(tx, tenant_id, purpose, old))
