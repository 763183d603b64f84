"""Idempotency-Key: a repeated create gets the response of the first."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from fastapi import Request
from fastapi.responses import JSONResponse

from fairlead.actions import idempotency
from fairlead.db.tx import Tx
from fairlead.errors import Fault, IdempotencyClash, InvalidInput
from fairlead.server.auth import Caller

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
NO_TENANT = UUID(int=0)

# Creates in the transaction; returns the status and the body of the response.
Create = Callable[[Tx], Awaitable[tuple[int, Any]]]


async def create_once(
    request: Request,
    caller: Caller,
    create: Create,
    *,
    as_system: bool = False,
    shown_once: Sequence[str] = (),
    with_password: bool = False,
) -> JSONResponse:
    """Run a create. With a key, the response is stored in the same transaction.

    Fields that are `shown_once` are not stored: a repeated request gets null for them.
    """
    key = request.headers.get(HEADER)
    if key is None:
        async with caller.transaction(as_system=as_system) as tx:
            status, body = await create(tx)
        return json_response(status, body)
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise InvalidInput(
            f"{HEADER} must have 1 to {LONGEST_KEY} printable characters.", [Fault(HEADER, "not valid")]
        )
    scope = caller.tenant_id or NO_TENANT
    asked = await _hash_request(request, caller, key if with_password else None)
    async with caller.transaction(as_system=as_system) as tx:
        earlier = await idempotency.take_key(tx, scope_id=scope, key=key, body_hash=asked)
        if earlier is not None:
            if earlier.body_hash != asked:
                raise IdempotencyClash(
                    f"This {HEADER} was used for another request. Use a new one for a new request.",
                    [Fault(HEADER, "used before")],
                )
            return json_response(earlier.status_code or 200, earlier.answer, replayed=True)
        status, body = await create(tx)
        await idempotency.store_response(
            tx, scope_id=scope, key=key, status_code=status, answer=_blank_secrets(body, shown_once)
        )
    return json_response(status, body)


class _QuickResponse(JSONResponse):
    """Its body may be a large run or job: json takes ten times as long."""

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def json_response(status: int, body: Any, *, replayed: bool = False) -> JSONResponse:
    """A JSON response; `replayed` marks a stored one."""
    headers = {"Idempotent-Replayed": "true"} if replayed else None
    return _QuickResponse(body, status_code=status, headers=headers)


def _blank_secrets(body: Any, shown_once: Sequence[str]) -> Any:
    return {**body, **dict.fromkeys(shown_once)} if shown_once else body


async def _hash_request(request: Request, caller: Caller, salt: str | None) -> bytes:
    """Hash the method, path, actor and body."""
    what = [
        request.method,
        request.url.path,
        caller.principal.actor,
        hashlib.sha256(await request.body()).hexdigest(),
    ]
    text = msgspec.json.encode(what)
    if salt is None:
        return hashlib.sha256(text).digest()
    # the stored hash of a body with a password must be as hard to guess as a password hash
    return await asyncio.to_thread(hashlib.scrypt, text, salt=salt.encode(), n=2**14, r=8, p=1, dklen=32)
