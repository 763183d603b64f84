"""Sign-ins in a browser that wait for a code, after the right password."""

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.store.access import Credentials

sql = queries_beside(__file__)

# How many codes one may try before the password is needed again.
MOST_TRIES = 5


async def begin(tx: Tx, user: Credentials, *, secret_hash: bytes, seconds: float) -> bool:
    """Begin one for a user whose password was verified; False if the user has changed since."""
    values = {"secret_hash": secret_hash, "seconds": seconds, "id": user.id, "role": user.role}
    return bool(await tx.run(sql.begin, {**values, "password_hash": user.password_hash}))


async def find(tx: Tx, secret_hash: bytes) -> Credentials | None:
    """The user of a pending sign-in; None if it has ended, or if the user has changed since."""
    return await tx.first(Credentials, sql.find, {"secret_hash": secret_hash, "most_tries": MOST_TRIES})


async def lock(tx: Tx, secret_hash: bytes) -> Credentials | None:
    """The same, locked until the end of the transaction."""
    if not await tx.values(sql.lock, {"secret_hash": secret_hash}):
        return None
    return await find(tx, secret_hash)


async def count_try(tx: Tx, secret_hash: bytes) -> None:
    """Count a wrong code."""
    await tx.run(sql.count_try, {"secret_hash": secret_hash})


async def end(tx: Tx, secret_hash: bytes) -> None:
    await tx.run(sql.end, {"secret_hash": secret_hash})


async def forget(tx: Tx) -> None:
    """Remove those whose time is over."""
    await tx.run(sql.forget)
