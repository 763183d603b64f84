"""Parts of stored JSON documents that are sealed one by one, each bound to its tenant, its document and its place there."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.tx import Tx
from fairlead.keys.sealed import DataKey, open_text, parse_sealed, seal_text
from fairlead.model.secrets.redact import SecretPath, join_path, rewrite_places
from fairlead.model.secrets.reference import is_reference
from fairlead.model.secrets.sealed_payload import KEY, change_sealed, is_sealed_value, list_key_ids
from fairlead.store import sealing


class Sealer:
    """Seals parts of one document with the key of its tenant. `document` is what they are bound to: name the table and the
    row.
    """

    def __init__(self, key: DataKey, document: str) -> None:
        self.key = key
        self._document = document

    def __call__(self, value: Any, at: SecretPath) -> str:
        text = msgspec.json.encode(value).decode()
        return seal_text(self.key, self.key.tenant_id, _describe_purpose(self._document, at), text)

    def seal_paths(self, document: Any, paths: Sequence[str]) -> Any:
        """The document with the values at the paths sealed. References, sealed and empty values stay as they are."""

        def seal(value: Any, at: SecretPath) -> Any:
            if value is None or value == "" or is_reference(value) or is_sealed_value(value):
                return value
            return {KEY: self(value, at)}

        return rewrite_places(document, paths, seal)


async def find_sealer(tx: Tx, tenant_id: UUID, document: str) -> Sealer:
    """What seals parts of a document of a tenant, with the tenant's current key."""
    return Sealer(await sealing.find_current_key(tx, tenant_id), document)


async def open_parts(tx: Tx, value: Any, *, tenant_id: UUID, document: str) -> Any:
    """The document with its sealed parts opened. SealBroken if one was changed, or is another document's."""
    return await _change_parts(tx, value, lambda _, plain, __: plain, tenant_id=tenant_id, document=document)


async def renew_parts(tx: Tx, value: Any, sealer: Sealer, *, tenant_id: UUID, document: str) -> Any:
    """The document with its sealed parts sealed anew, if an earlier key has sealed one of them."""
    if not list_key_ids(value) - {sealer.key.id}:
        return value
    return await _change_parts(
        tx,
        value,
        lambda part, plain, at: {**part, KEY: sealer(plain, at)},
        tenant_id=tenant_id,
        document=document,
    )


async def _change_parts(
    tx: Tx, value: Any, change: Callable[[Any, Any, SecretPath], Any], *, tenant_id: UUID, document: str
) -> Any:
    if not (ids := list_key_ids(value)):
        return value
    keys = {key.id: key for key in await sealing.find_keys(tx, ids)}

    def change_one(part: Any, at: SecretPath) -> Any:
        sealed = parse_sealed(part[KEY])
        text = open_text(keys[sealed.key_id], tenant_id, _describe_purpose(document, at), sealed)
        return change(part, msgspec.json.decode(text), at)

    return change_sealed(value, change_one)


def _describe_purpose(document: str, at: SecretPath) -> str:
    return f"{document}\x00{join_path(at)}"
