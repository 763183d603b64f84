"""The second factors of users. Their secrets are stored as the caller sealed them."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.second_factor import STEP_SECONDS

sql = queries_beside(__file__)

# How long a set-up may take, from the key to the first code.
SETUP_SECONDS = 3600


def describe_secret(user_id: UUID) -> str:
    """The purpose for which a secret is sealed: it cannot be copied to another user."""
    return f"second_factors/{user_id}/secret"


class StoredFactor(msgspec.Struct, frozen=True, kw_only=True):
    """A second factor, and the time step that it is now."""

    user_id: UUID
    tenant_id: UUID | None
    secret: str
    confirmed_at: datetime | None
    last_step: int | None
    recovery_hashes: list[bytes]
    step: int
    is_fresh: bool


class ActiveFactor(msgspec.Struct, frozen=True):
    confirmed_at: datetime
    recovery_codes_left: int


async def lock(tx: Tx, user_id: UUID) -> StoredFactor | None:
    """A user's second factor or begun set-up, locked until the end of the transaction."""
    values = {"user_id": user_id, "step_seconds": STEP_SECONDS, "setup_seconds": SETUP_SECONDS}
    return await tx.first(StoredFactor, sql.lock, values)


async def get(tx: Tx, user_id: UUID) -> ActiveFactor | None:
    return await tx.first(ActiveFactor, sql.get, {"user_id": user_id})


async def begin(tx: Tx, user_id: UUID, *, secret: str) -> bool:
    """Begin a set-up; False if the user has a second factor already."""
    return bool(await tx.run(sql.begin, {"user_id": user_id, "secret": secret}))


async def confirm(tx: Tx, user_id: UUID, *, step: int, hashes: Sequence[bytes]) -> bool:
    """Activate a second factor; False if it is active already."""
    return bool(await tx.run(sql.confirm, {"user_id": user_id, "step": step, "hashes": list(hashes)}))


async def use_step(tx: Tx, user_id: UUID, *, step: int) -> bool:
    """Accept the code of a time step; False if it, or a later one, was accepted before."""
    return bool(await tx.run(sql.use_step, {"user_id": user_id, "step": step}))


async def use_recovery_code(tx: Tx, user_id: UUID, *, code_hash: bytes) -> bool:
    """Accept a recovery code, once; False if there is none with this hash."""
    return bool(await tx.run(sql.use_recovery_code, {"user_id": user_id, "hash": code_hash}))


async def set_recovery_codes(tx: Tx, user_id: UUID, *, hashes: Sequence[bytes]) -> None:
    await tx.run(sql.set_recovery_codes, {"user_id": user_id, "hashes": list(hashes)})


async def remove(tx: Tx, user_id: UUID) -> bool:
    """Remove a second factor and a begun set-up; whether it was active."""
    return any(active for (active,) in await tx.values(sql.remove, {"user_id": user_id}))


async def forget_setups(tx: Tx) -> None:
    """Remove the set-ups that were not confirmed in time."""
    await tx.run(sql.forget_setups, {"setup_seconds": SETUP_SECONDS})


async def touch_user(tx: Tx, user_id: UUID) -> None:
    """Mark the user as changed, which ends pending sign-ins; waits for sessions that are just starting."""
    await tx.run(sql.touch_user, {"user_id": user_id})
