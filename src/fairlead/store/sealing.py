"""Secrets at rest: seal a value with the data key of its tenant before it is stored, and open it where it is used.

A data key is wrapped by a master key, which only processes have. See docs/how-to/encrypt-secrets.md.
"""

import asyncio
import os
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from uuid_utils.compat import uuid7

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.errors import EncryptionKeyMissing, FairleadError, SealBroken
from fairlead.keys.keyring import PLATFORM
from fairlead.keys.master import build_context
from fairlead.keys.sealed import (
    KEY_BYTES,
    PLAIN,
    DataKey,
    is_sealed,
    open_text,
    parse_sealed,
    seal_text,
)
from fairlead.model.job import NewJob
from fairlead.model.request import unknown_tenant
from fairlead.model.secrets.sealed_payload import list_key_ids, open_values, refuse_copies, seal_values

sql = queries_beside(__file__)


class _StoredKey(msgspec.Struct, frozen=True):
    tenant_id: UUID | None
    id: UUID | None
    wrapped: bytes | None
    master_key: str | None
    is_settled: bool | None


async def seal(tx: Tx, tenant_id: UUID | None, purpose: str, text: str) -> str:
    """A text to store instead of a secret of a tenant, or (None) of the platform.

    Only `unseal` with the same tenant and purpose opens it: name the table, the row and the column in the purpose. If the
    database does not encrypt, the result has the text in plain form.
    """
    if not await is_on(tx):
        return PLAIN + text
    return seal_text(await find_current_key(tx, tenant_id), tenant_id, purpose, text)


async def unseal(tx: Tx, tenant_id: UUID | None, purpose: str, stored: str) -> str:
    """The text that `seal` was given; SealBroken if what is stored was changed, or sealed for something else."""
    if stored.startswith(PLAIN):
        return stored.removeprefix(PLAIN)
    sealed = parse_sealed(stored)
    [key] = await find_keys(tx, [sealed.key_id])
    return open_text(key, tenant_id, purpose, sealed)


async def seal_payload(tx: Tx, new: NewJob, text: bytes, paths: Sequence[str]) -> bytes:
    """The checked payload of a request as it is stored: with sealed secrets, if the database encrypts."""
    if not paths or not await is_on(tx):
        return text
    return seal_prepared(await find_current_key(tx, new.tenant), new, text, paths)


def seal_prepared(key: DataKey, new: NewJob, text: bytes, paths: Sequence[str]) -> bytes:
    """Seal the secrets of a checked payload with the key of its tenant."""
    payload = msgspec.json.decode(text)
    texts = {"correlation_id": new.correlation_id, "source_ref": new.source_ref}
    texts |= {f"tags[{place}]": tag for place, tag in enumerate(new.tags or ())}
    refuse_copies(new.definition, payload, paths, dedupe_key=new.dedupe_key, texts=texts)
    job_id = None if new.debounce is not None else new.id
    return msgspec.json.encode(seal_for_job(key, payload, paths, definition=new.definition, job_id=job_id))


def seal_for_job(
    key: DataKey, payload: Any, paths: Sequence[str], *, definition: str, job_id: UUID | None
) -> Any:
    """The payload with sealed secrets."""
    if key.tenant_id is None:
        raise ValueError("the platform has no jobs")
    return seal_values(payload, paths, key, tenant_id=key.tenant_id, definition=definition, job_id=job_id)


async def unseal_payload(tx: Tx, payload: Any, *, tenant_id: UUID, definition: str, job_id: UUID) -> Any:
    """The payload with its secrets. SealBroken if one was changed, or is another job's."""
    if not (ids := list_key_ids(payload)):
        return payload
    keys = {key.id: key for key in await find_keys(tx, ids)}
    return open_values(payload, keys.__getitem__, tenant_id=tenant_id, definition=definition, job_id=job_id)


async def is_on(tx: Tx) -> bool:
    """Whether the database encrypts secrets. A process notices within seconds that it does."""
    ring = tx.keyring
    if ring.is_known_on or ring.is_known_off:
        return ring.is_known_on
    [(found,)] = await tx.values(sql.is_on)
    ring.note_state(is_on=found)
    return bool(found)


async def hold_state(tx: Tx) -> bool:
    """Whether the database encrypts secrets; if not, it does not begin to before the end of this transaction."""
    [(found,)] = await tx.values(sql.hold_state)
    return bool(found)


async def find_age(tx: Tx) -> float:
    """The seconds since the database encrypts; infinite if it does not."""
    [(found,)] = await tx.values(sql.age)
    return float("inf") if found is None else float(found)


async def enable(tx: Tx) -> bool:
    """Encrypt secrets from now on; False if the database does already."""
    await find_current_key(tx, None)
    is_new = bool(await tx.values(sql.enable))
    tx.keyring.forget_state()
    return is_new


async def find_current_key(tx: Tx, tenant: str | UUID | None) -> DataKey:
    """The key with which to seal values of a tenant (its slug or id), or (None) of the platform; made if there is none.

    EncryptionKeyMissing if this process has no master key.
    """
    owner = PLATFORM if tenant is None else str(tenant)
    if (known := tx.keyring.find_current(owner)) is not None:
        return known
    tx.keyring.require_master()
    row = await _read_current(tx, tenant)
    if row.id is None:
        await add_key(tx, row.tenant_id)
        row = await _read_current(tx, tenant)
    return await _unwrap(tx, row, owner)


async def find_keys(tx: Tx, ids: Iterable[UUID]) -> list[DataKey]:
    """The data keys with these ids, in their order. SealBroken if there is no such key."""
    wanted = list(ids)
    found = await try_keys(tx, wanted)
    return [require_key(found[key_id]) for key_id in wanted]


TriedKey = DataKey | FairleadError


def require_key(tried: TriedKey) -> DataKey:
    """The data key; or the error that says why there is none."""
    if isinstance(tried, FairleadError):
        raise tried
    return tried


async def try_keys(tx: Tx, ids: Collection[UUID]) -> dict[UUID, TriedKey]:
    """The data keys with these ids, each or why it cannot be had.

    A KMS is called for all of them at once: several tenants whose calls hang delay the others by one call.
    """
    found: dict[UUID, TriedKey] = {
        key_id: key for key_id in ids if (key := tx.keyring.find(key_id)) is not None
    }
    missing = {key_id for key_id in ids if key_id not in found}
    if not missing:
        return found
    try:
        tx.keyring.require_master()
    except EncryptionKeyMissing as error:
        return found | dict.fromkeys(missing, error)
    rows = await tx.all(_StoredKey, sql.get, {"ids": list(missing)})
    tried = await asyncio.gather(*(_try_unwrap(tx, row) for row in rows))
    found |= {row.id: one for row, one in zip(rows, tried, strict=True) if row.id is not None}
    for key_id in missing.difference(found):
        found[key_id] = SealBroken(
            f"A value was sealed with the data key {key_id}, which is not in tenant_keys: restore the table from a backup."
        )
    return found


async def fetch_keys(tx: Tx, documents: Iterable[Any]) -> None:
    """Have the keys in memory with which parts of these documents are sealed, as far as they can be had."""
    ids = set[UUID]()
    for document in documents:
        with suppress(SealBroken):  # told when the document is opened
            ids |= list_key_ids(document)
    await try_keys(tx, ids)


async def add_key(tx: Tx, tenant_id: UUID | None) -> UUID:
    """Make a data key, wrapped by the current master key. Its id; another one may have been made at the same time."""
    master, key_id = tx.keyring.require_master(), uuid7()
    with tx.keyring.call_for(tenant_id):
        wrapped = await master.wrap(os.urandom(KEY_BYTES), build_context(key_id, tenant_id))
    values = {
        "id": key_id,
        "tenant_id": tenant_id,
        "wrapped": wrapped,
        "master_key": master.id,
    }
    await tx.run(sql.add, values)
    return key_id


async def _read_current(tx: Tx, tenant: str | UUID | None) -> _StoredKey:
    name = None if tenant is None else str(tenant)
    row = await tx.first(_StoredKey, sql.current, {"tenant": name})
    if row is None:
        raise unknown_tenant(str(tenant))
    return row


async def _try_unwrap(tx: Tx, row: _StoredKey) -> TriedKey:
    try:
        return await _unwrap(tx, row)
    except FairleadError as error:
        return error


async def _unwrap(tx: Tx, row: _StoredKey, *owners: str) -> DataKey:
    """The data key of a row. It stays in memory unless this transaction has made it."""
    if row.id is None or row.wrapped is None:
        raise SealBroken("A data key has vanished while it was read. Try again.")
    if (known := tx.keyring.find(row.id)) is None:
        master = tx.keyring.require_master(row.master_key)
        with tx.keyring.call_for(row.id):
            plain = await master.unwrap(row.wrapped, build_context(row.id, row.tenant_id))
        known = DataKey(row.id, row.tenant_id, AESGCM(plain))
    if row.is_settled:
        tx.keyring.keep(known, *owners)
    return known


__all__ = ["add_key", "find_current_key", "find_keys", "is_on", "is_sealed", "seal", "unseal"]
