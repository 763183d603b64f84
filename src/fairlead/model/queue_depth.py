"""How much work there is for workers: what an autoscaler needs."""

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import msgspec


class PairDepth(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant and a definition: the jobs that are due, those that run, and the limits that hold some of them back.

    `running` leaves out jobs on hosts, `leased` counts them: limits do.
    """

    tenant_id: UUID
    definition_id: UUID
    due: int
    running: int
    leased: int
    slots: int
    is_open: bool
    tenant_limit: int | None
    definition_limit: int | None
    pair_limit: int | None


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that workers run or could start now.

    `depth` is both together, and `slots` are the slots of workers that they take.
    """

    definition_key: str | None
    claimable: int
    running: int
    depth: int
    slots: int


def measure_depth(
    key: str | None, tenant_id: UUID | None, definition_id: UUID | None, pairs: Sequence[PairDepth]
) -> QueueDepth:
    """The depth of a tenant and definition, or (None) of all. The pairs must include every lease that their limits count."""
    tenants, definitions = Counter[UUID](), Counter[UUID]()
    for pair in pairs:
        tenants[pair.tenant_id] += pair.leased
        definitions[pair.definition_id] += pair.leased
    claimable = running = slots = 0
    for pair in pairs:
        if pair.tenant_id != (tenant_id or pair.tenant_id) or pair.definition_id != (
            definition_id or pair.definition_id
        ):
            continue
        room = min(
            pair.due,
            _room(pair.pair_limit, pair.leased),
            _room(pair.tenant_limit, tenants[pair.tenant_id]),
            _room(pair.definition_limit, definitions[pair.definition_id]),
        )
        taken = room if pair.is_open else 0
        tenants[pair.tenant_id] += taken
        definitions[pair.definition_id] += taken
        claimable += taken
        running += pair.running
        slots += (taken + pair.running) * pair.slots
    return QueueDepth(
        definition_key=key,
        claimable=claimable,
        running=running,
        depth=claimable + running,
        slots=slots,
    )


_ALL = 1 << 60


def _room(limit: int | None, leased: int) -> int:
    return _ALL if limit is None else max(0, limit - leased)


def add_depths(cells: Sequence[QueueDepth]) -> QueueDepth:
    """The depth of several cells."""
    return QueueDepth(
        definition_key=next((one.definition_key for one in cells), None),
        claimable=sum(one.claimable for one in cells),
        running=sum(one.running for one in cells),
        depth=sum(one.depth for one in cells),
        slots=sum(one.slots for one in cells),
    )
