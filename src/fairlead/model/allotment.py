"""How a definition's limit is divided between cells."""

from collections.abc import Mapping
from typing import TypeVar

C = TypeVar("C")


def divide(total: int, wanted: Mapping[C, int]) -> dict[C, int]:
    """Divide a limit between cells by what they want to run: waiting and running jobs.

    If there is enough for all, the rest is divided evenly, so that a cell can begin at once when jobs arrive. A cell that
    wants something gets at least one place, if there are enough.
    """
    total, everything = max(0, total), sum(wanted.values())
    if not wanted:
        return {}
    if everything <= total:
        each, rest = divmod(total - everything, len(wanted))
        return {cell: want + each + (at < rest) for at, (cell, want) in enumerate(wanted.items())}
    parts = {cell: total * want // everything for cell, want in wanted.items()}
    for cell in sorted(wanted, key=lambda one: total * wanted[one] % everything, reverse=True):
        if sum(parts.values()) < total:
            parts[cell] += 1
    for cell in [one for one, want in wanted.items() if want and not parts[one]]:
        richest = max(parts, key=lambda one: parts[one])
        if parts[richest] > 1:
            parts[richest] -= 1
            parts[cell] += 1
    return parts
