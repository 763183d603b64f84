"""Moves of tenants between cells: their steps, and what a move has done so far."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec


class MoveStep(StrEnum):
    """What a move does next. Until FLIP it can be taken back: then it goes on with REOPEN."""

    GATE = "gate"
    COPY = "copy"
    FLIP = "flip"
    OPEN = "open"
    REMOVE = "remove"
    REOPEN = "reopen"


REVERSIBLE = (MoveStep.GATE, MoveStep.COPY, MoveStep.FLIP)


class TenantMove(msgspec.Struct, frozen=True, kw_only=True):
    """A move that has begun and not ended."""

    tenant_id: UUID
    slug: str
    source: str
    target: str
    step: MoveStep
    # the epoch that the move gives the tenant
    epoch: int
    detail: dict[str, Any]
    last_error: str | None
    started_by: str
    started_at: datetime
    updated_at: datetime


class CopyProgress(msgspec.Struct, frozen=True):
    """How many of the tenant's rows have been copied, and from which table the last ones are."""

    table: str
    rows: int
    of: int


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that runs, and whether it has touched a table of Fairlead."""

    id: str
    pid: int | None
    holds: bool
