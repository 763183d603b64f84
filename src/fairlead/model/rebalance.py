"""Which tenants to move so that the cells carry the same load."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlead.model.cells import TenantLoad

# Cells whose loads differ by less than this part of the mean stay as they are: a move costs something, too.
TOLERANCE = 0.1


class CellTenants(NamedTuple):
    """A cell's tenants and what they used in the last day; `is_draining`: it gets no tenants."""

    tenants: Sequence[TenantLoad]
    is_draining: bool = False


class PlannedMove(NamedTuple):
    """A tenant that should move, and why."""

    tenant: str
    source: str
    target: str
    load: float
    why: str


def plan_moves(cells: Mapping[str, CellTenants], *, empty: str | None = None) -> list[PlannedMove]:
    """The moves that even out the cells' loads, the largest first; with `empty`, all tenants of that cell.

    The load of a tenant is its run time of the last day; tenants without any count a little, so that their numbers even out.
    """
    loads = {name: sum(map(_weigh, cell.tenants)) for name, cell in cells.items()}
    open_cells = [name for name, cell in cells.items() if not cell.is_draining and name != empty]
    leaving = [name for name, cell in cells.items() if name == empty or (cell.is_draining and empty is None)]
    if not open_cells:
        return []
    moves = list[PlannedMove]()
    for source in leaving:
        why = "the cell is to be empty" if source == empty else "the cell is draining"
        for one in sorted(cells[source].tenants, key=_weigh, reverse=True):
            target = min(open_cells, key=lambda name: (loads[name], name))
            moves.append(_move(loads, one, source, target, why))
    if empty is None:
        moves += _even_out({name: list(cells[name].tenants) for name in open_cells}, loads)
    return moves


def _even_out(tenants: dict[str, list[TenantLoad]], loads: dict[str, float]) -> list[PlannedMove]:
    moves = list[PlannedMove]()
    mean = sum(loads[name] for name in tenants) / len(tenants)
    for _ in range(sum(map(len, tenants.values()))):
        source = max(tenants, key=lambda name: (loads[name], name))
        target = min(tenants, key=lambda name: (loads[name], name))
        gap = loads[source] - loads[target]
        # the largest tenant that leaves the target with less than the source has
        fitting = [one for one in tenants[source] if _weigh(one) < gap]
        if gap <= mean * TOLERANCE or not fitting:
            break
        one = min(fitting, key=lambda each: (abs(gap / 2 - _weigh(each)), each.slug))
        why = f"{source} carries {loads[source] / mean:.0%} of the mean, {target} {loads[target] / mean:.0%}"
        tenants[source].remove(one)
        tenants[target].append(one)
        moves.append(_move(loads, one, source, target, why))
    return moves


def _move(loads: dict[str, float], one: TenantLoad, source: str, target: str, why: str) -> PlannedMove:
    load = _weigh(one)
    loads[source] -= load
    loads[target] += load
    return PlannedMove(one.slug, source, target, load, why)


def _weigh(one: TenantLoad) -> float:
    """Seconds of run time in the last day; at least one."""
    return max(1.0, one.run_ms / 1000)
