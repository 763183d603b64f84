"""The size of a JSON value."""

from typing import Any, NamedTuple


class Extent(NamedTuple):
    """Counts of a JSON value. `values` includes keys; `held` counts each value once per level above it; `long_numbers`
    are beyond the exact range of a float, and `huge_numbers` beyond 64 bits.
    """

    values: int
    characters: int
    depth: int
    held: int
    long_numbers: int
    huge_numbers: int


# Above the first, a float is not exact; above the second, an integer does not fit into 64 bits.
MOST_EXACT = 2**53
MOST_LONG = 2**63


def extent_of(value: Any) -> Extent:
    """The extent of a plain JSON value, counted level by level."""
    values = characters = depth = held = long_numbers = huge_numbers = 0
    level = [value]
    while level:
        below: list[Any] = []
        for one in level:
            kind = type(one)
            if kind is dict:
                values += len(one)
                characters += sum(map(len, one))
                below.extend(one.values())
            elif kind is list or kind is tuple:
                below.extend(one)
            elif kind is str:
                characters += len(one)
            elif (kind is int or kind is float) and not -MOST_EXACT <= one <= MOST_EXACT:
                long_numbers += 1
                huge_numbers += not -MOST_LONG <= one <= MOST_LONG
        values += len(level)
        held += (depth + 1) * len(level)
        depth += 1 if below else 0
        level = below
    return Extent(values, characters, depth, held, long_numbers, huge_numbers)
