"""The layout of a graph of up to 10,000 steps, which the browser draws. Pure.

Steps that wait for the same steps are a group: a layer that waits for all of the layer before is one group, not the product
of both. Long layers are folded into columns, so that the whole graph has about the shape of a screen.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, sqrt

import msgspec

from fairlead.server.console.graph_layout import BOX_HEIGHT, BOX_WIDTH, GAP_ACROSS, GAP_DOWN, MARGIN

# Wider than in small graphs: more lines share the gap.
GAP_LAYERS = 2 * GAP_ACROSS
SHORTEST_COLUMN = 24
# The width of a large graph, as a multiple of its height.
ASPECT = 1.6
SWEEPS = 3


class StepGroup(msgspec.Struct, frozen=True):
    """Steps that wait for the same steps."""

    before: tuple[int, ...]
    places: tuple[int, ...]


class LargeShape(msgspec.Struct, frozen=True):
    """A graph: its groups, and pairs of a step and the step that compensates it."""

    steps: int
    groups: tuple[StepGroup, ...]
    compensations: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, before: Sequence[Iterable[int]], compensations: Mapping[int, int]) -> "LargeShape":
        """Build the shape from the predecessors of each step."""
        found: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, parents in enumerate(before):
            found[tuple(parents)].append(place)
        groups = tuple(StepGroup(parents, tuple(places)) for parents, places in found.items())
        return cls(len(before), groups, tuple(compensations.items()))

    def links(self) -> list[StepGroup]:
        """All groups that wait for something, and the compensations as groups of one."""
        undo = [StepGroup((start,), (end,)) for start, end in self.compensations]
        return [*(group for group in self.groups if group.before), *undo]


class LargeLayout(msgspec.Struct, frozen=True):
    """The corner of each box, by place; `hubs` has the point where the lines of a group meet, by its index."""

    width: int
    height: int
    layers: Sequence[int]
    x: Sequence[int]
    y: Sequence[int]
    groups: Sequence[StepGroup]
    # [group, x, y] of each group of several steps that wait for several
    hubs: Sequence[tuple[int, int, int]]
    compensations: Sequence[tuple[int, int]]
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


@lru_cache(maxsize=32)  # live pages request it every second
def find_layers(shape: LargeShape) -> Sequence[int]:
    """The layer of each step: one after the last layer of its predecessors."""
    links = shape.links()
    children: dict[int, list[int]] = defaultdict(list)
    waits = [0] * shape.steps
    for number, group in enumerate(links):
        for parent in group.before:
            children[parent].append(number)
        for place in group.places:
            waits[place] += 1
    missing = [len(group.before) for group in links]
    reached = [0] * len(links)
    layers = [0] * shape.steps
    free = deque(place for place in range(shape.steps) if not waits[place])
    while free:
        place = free.popleft()
        for number in children[place]:
            reached[number] = max(reached[number], layers[place] + 1)
            missing[number] -= 1
            if missing[number]:
                continue
            for child in links[number].places:
                layers[child] = max(layers[child], reached[number])
                waits[child] -= 1
                if not waits[child]:
                    free.append(child)
    return layers


@lru_cache(maxsize=16)
def lay_out(shape: LargeShape) -> LargeLayout:
    """Place each step in its layer, near the steps that it waits for."""
    layers = find_layers(shape)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for place, layer in enumerate(layers):
        rows[layer].append(place)
    _sort_rows(rows, shape)
    x, y, width, height = _place_boxes(rows, shape.steps)
    hubs = [
        (number, *_place_hub(group, x, y))
        for number, group in enumerate(shape.groups)
        if len(group.before) > 1 and len(group.places) > 1
    ]
    return LargeLayout(width, height, layers, x, y, shape.groups, hubs, shape.compensations)


def _sort_rows(rows: list[list[int]], shape: LargeShape) -> None:
    """Sort each layer by the mean position of its neighbours, to the right and back."""
    links = shape.links()
    rank = [0.0] * shape.steps
    for row in rows:
        _rank(row, rank)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        total, count = [0.0] * shape.steps, [0] * shape.steps
        for group in links:
            near, far = (group.places, group.before) if forth else (group.before, group.places)
            mean = sum(rank[place] for place in far) / len(far)
            for place in near:
                total[place] += mean
                count[place] += 1
        for row in rows:
            row.sort(key=lambda place: total[place] / count[place] if count[place] else rank[place])
            _rank(row, rank)


def _rank(row: Sequence[int], rank: list[float]) -> None:
    """Positions between 0 and 1, since layers differ in length."""
    for at, place in enumerate(row):
        rank[place] = (at + 0.5) / len(row)


def _place_boxes(rows: Sequence[Sequence[int]], steps: int) -> tuple[list[int], list[int], int, int]:
    across, down = BOX_WIDTH + GAP_ACROSS, BOX_HEIGHT + GAP_DOWN
    longest = max(SHORTEST_COLUMN, ceil(sqrt(steps * across / down / ASPECT)))
    tallest = min(longest, max(map(len, rows), default=0))
    x, y, left = [0] * steps, [0] * steps, MARGIN
    for row in rows:
        columns = ceil(len(row) / longest)
        height = ceil(len(row) / columns)
        top = MARGIN + (tallest - height) * down // 2
        for at, place in enumerate(row):
            # row by row, so that neighbours in the order stay near each other
            x[place] = left + at % columns * across
            y[place] = top + at // columns * down
        left += columns * across - GAP_ACROSS + GAP_LAYERS
    return x, y, left - GAP_LAYERS + MARGIN, tallest * down - GAP_DOWN + 2 * MARGIN


def _place_hub(group: StepGroup, x: Sequence[int], y: Sequence[int]) -> tuple[int, int]:
    left = min(x[place] for place in group.places) - GAP_LAYERS // 3
    both = (*group.before, *group.places)
    return left, sum(y[place] for place in both) // len(both) + BOX_HEIGHT // 2
