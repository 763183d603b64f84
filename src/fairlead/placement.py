"""Whether a tenant lives in this cell, and the errors if it does not."""

from enum import StrEnum

from fairlead.errors import Fault, TenantMoved, TenantMoving


class Placement(StrEnum):
    """Whether a tenant lives in this cell; only a tenant that is HERE can be changed."""

    HERE = "here"
    LEAVING = "leaving"
    ARRIVING = "arriving"
    MOVED = "moved"


def moved_error(tenant: str, cell: str | None = None) -> TenantMoved:
    where = f"in the cell {cell!r}" if cell else "in another cell"
    return TenantMoved(
        f"The tenant {tenant[:80]!r} lives {where} now. Use the database of the home cell, which finds it.",
        [Fault("tenant", "moved")],
    )


def moving_error(tenant: str | None) -> TenantMoving:
    which = "The tenant" if tenant is None else f"The tenant {tenant[:80]!r}"
    return TenantMoving(
        f"{which} is being moved to another cell. Try again in {TenantMoving.retry_after} seconds.",
        [Fault("tenant", "moving")],
    )


def require_readable(tenant: str, placement: str, moved_to: str | None = None) -> None:
    """Raise unless the tenant's rows are in this cell."""
    if placement == Placement.MOVED:
        raise moved_error(tenant, moved_to)
    if placement == Placement.ARRIVING:
        raise moving_error(tenant)


def require_writable(tenant: str, placement: str) -> None:
    """Raise unless the tenant can be changed in this cell."""
    require_readable(tenant, placement)
    if placement == Placement.LEAVING:
        raise moving_error(tenant)


def refuse_elsewhere(tenant: str, outcome: str) -> None:
    """Raise if the database refused a request because the tenant does not live in this cell."""
    if outcome == TenantMoved.code:
        raise moved_error(tenant)
    if outcome == TenantMoving.code:
        raise moving_error(tenant)
