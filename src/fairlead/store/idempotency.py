"""Responses to creates with an Idempotency-Key, kept for a day."""

from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text

sql = queries_beside(__file__)


class EarlierRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The earlier request with this key, and its response."""

    body_hash: bytes
    status_code: int | None
    answer: Any


async def take_key(tx: Tx, *, scope_id: UUID, key: str, body_hash: bytes) -> EarlierRequest | None:
    """Take the key for this transaction and return None, or return the earlier request."""
    values = {"scope_id": scope_id, "key": key, "body_hash": body_hash}
    if await tx.values(sql.begin, values):
        return None
    await tx.wait_for_standby()
    return await tx.first(EarlierRequest, sql.earlier, values)


async def store_response(tx: Tx, *, scope_id: UUID, key: str, status_code: int, answer: Any) -> None:
    """Store the response to the create."""
    values = {"scope_id": scope_id, "key": key, "status_code": status_code, "answer": json_text(answer)}
    await tx.run(sql.keep, values)


async def remove_old(tx: Tx) -> int:
    """Remove entries older than a day. Their number."""
    return await tx.run(sql.forget)
