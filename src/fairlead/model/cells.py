"""Cells: the databases that together hold all tenants, and where each tenant lives."""

from datetime import datetime
from uuid import UUID

import msgspec

HOME = "home"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A whole Fairlead at a database and a schema."""

    name: str
    cell_id: UUID
    # None: the home cell, which the settings name. It may have a password, and is never shown
    url: str | None
    schema_name: str
    is_citus: bool
    is_draining: bool
    created_by: str
    created_at: datetime

    @property
    def is_home(self) -> bool:
        return self.url is None

    def __repr__(self) -> str:
        return f"<cell {self.name}>"


class TenantCell(msgspec.Struct, frozen=True, kw_only=True):
    """The directory's entry of a tenant."""

    tenant_id: UUID
    slug: str
    cell: str
    epoch: int


class CellLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell carries; `run_ms` and the tenants' are those of the last day."""

    tenants: int
    waiting: int
    running: int
    run_ms: int
    bytes: int


class TenantLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant used in the last day."""

    tenant_id: UUID
    slug: str
    weight: int
    run_ms: int
    runs: int
