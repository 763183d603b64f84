"""How large a JSON value is."""

from typing import Any, NamedTuple


class Extent(NamedTuple):
    """Values and keys, the characters in them, the deepest nesting, and `held`: each value once for each level above."""

    values: int
    characters: int
    depth: int
    held: int


def extent_of(value: Any) -> Extent:
    """The extent of a plain JSON value, counted level by level."""
    values = characters = depth = held = 0
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
        values += len(level)
        held += (depth + 1) * len(level)
        depth += 1 if below else 0
        level = below
    return Extent(values, characters, depth, held)
