"""Upkeep of rates and limits by key, in rounds that each look at a bounded number of rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)

BEGINNING = UUID(int=0)


class LimitPlace(NamedTuple):
    """The position of a walk through keys or buckets."""

    definition_id: UUID = BEGINNING
    tenant_id: UUID = BEGINNING
    limit_key: UUID = BEGINNING

    def __str__(self) -> str:
        return " ".join(map(str, self))


def read_place(text: str | None) -> LimitPlace:
    """A place from its text; the beginning without one."""
    return LimitPlace(*map(UUID, text.split())) if text else LimitPlace()


class Release(NamedTuple):
    """How many jobs became ready, and the place of the next round; None: it was the last."""

    released: int
    place: LimitPlace | None


async def release_free_keys(tx: Tx, place: LimitPlace, *, look: int) -> Release:
    """Look at `look` keys that hold jobs back, and let the jobs of free ones go."""
    await tx.prefer_indexes()  # it costs the same however large the tables are
    values = {**place._asdict(), "look": look}
    [(after, released)] = await tx.values(sql.release_free, values)
    return Release(int(released), _as_place(after))


async def remove_full_buckets(tx: Tx, place: LimitPlace, *, look: int, seconds: float) -> LimitPlace | None:
    """Delete those of `look` buckets that have been full for `seconds`. The place of the next round."""
    await tx.prefer_indexes()
    values: dict[str, Any] = {**place._asdict(), "look": look, "seconds": seconds}
    keys = await tx.values(sql.lock_unused_keys, values)
    [(after,)] = await tx.values(sql.buckets, values)
    if keys:
        definitions, tenants, limit_keys = (list(column) for column in zip(*keys, strict=True))
        await tx.run(
            sql.remove_keys,
            {"definitions": definitions, "tenants": tenants, "keys": limit_keys, "seconds": seconds},
        )
    return _as_place(after)


async def remove_unused_locks(tx: Tx, place: LimitPlace, *, look: int) -> LimitPlace | None:
    """Delete those of `look` locks of keys that no job runs of or waits for. The place of the next round."""
    await tx.prefer_indexes()
    [(after, _)] = await tx.values(sql.key_locks, {**place._asdict(), "look": look})
    return _as_place(after)


def _as_place(found: Sequence[UUID] | None) -> LimitPlace | None:
    return None if found is None else LimitPlace(*found)
