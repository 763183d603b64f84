"""Layered layout of a graph of steps, from left to right with few crossings. Pure."""

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

BOX_WIDTH, BOX_HEIGHT = 188, 56
GAP_ACROSS, GAP_DOWN = 46, 20
MARGIN = 14
# A larger graph is unreadable as a drawing.
MOST_STEPS = 150
# The sum of the layers that all lines cross: a larger drawing is unreadable and slow.
MOST_LENGTH = 2000
SWEEPS = 6

# Indexes of two steps.
Edge = tuple[int, int]


class Box(msgspec.Struct, frozen=True):
    """A step's box; x and y are its top left corner."""

    place: int
    layer: int
    x: int
    y: int


class Arrow(msgspec.Struct, frozen=True):
    """An arrow between two steps, as an SVG path."""

    start: int
    end: int
    path: str
    is_compensation: bool


class Drawing(msgspec.Struct, frozen=True):
    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[Arrow]
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


class GraphShape(msgspec.Struct, frozen=True):
    """A graph: the predecessors of each step, and pairs of a step and the step that compensates it."""

    before: tuple[tuple[int, ...], ...]
    compensations: tuple[Edge, ...]

    @classmethod
    def of(cls, before: Iterable[Iterable[int]], compensations: Mapping[int, int]) -> "GraphShape":
        """Build a hashable shape."""
        return cls(tuple(map(tuple, before)), tuple(compensations.items()))

    @property
    def edges(self) -> list[Edge]:
        """All arrows: dependencies, then compensations."""
        waits = [(parent, place) for place, parents in enumerate(self.before) for parent in parents]
        return [*waits, *self.compensations]


@lru_cache(maxsize=64)
def layers_of(shape: GraphShape) -> Sequence[int]:
    """The layer of each step: one after the last layer of its predecessors."""
    children: dict[int, list[int]] = defaultdict(list)
    for start, end in shape.edges:
        children[start].append(end)
    waits = Counter(end for _, end in shape.edges)
    layers = [0] * len(shape.before)
    free = deque(place for place in range(len(layers)) if not waits[place])
    while free:
        place = free.popleft()
        for child in children[place]:
            layers[child] = max(layers[child], layers[place] + 1)
            waits[child] -= 1
            if not waits[child]:
                free.append(child)
    return layers


@lru_cache(maxsize=256)  # live pages request it every second
def drawing_of(shape: GraphShape) -> Drawing | None:
    """The graph's drawing; None if it is too large."""
    if len(shape.before) > MOST_STEPS:
        return None
    layers = layers_of(shape)
    if sum(layers[end] - layers[start] for start, end in shape.edges) > MOST_LENGTH:
        return None
    laid = _Layout(shape, layers)
    laid.order()
    laid.place()
    return laid.drawing()


class _Layout:
    """Layers of knots: steps, and (numbered after them) the points where a line crosses a layer."""

    def __init__(self, shape: GraphShape, layers: Sequence[int]) -> None:
        self.shape = shape
        self.layer = list(layers)
        # the knots of each edge, including both ends
        self.routes = [self._route(start, end) for start, end in shape.edges]
        self.rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for knot, at in enumerate(self.layer):
            self.rows[at].append(knot)
        self.parents: dict[int, list[int]] = defaultdict(list)
        self.children: dict[int, list[int]] = defaultdict(list)
        for way in self.routes:
            for one, other in pairwise(way):
                self.children[one].append(other)
                self.parents[other].append(one)
        # the vertical middle of each knot
        self.middle: dict[int, float] = {}

    def _route(self, start: int, end: int) -> list[int]:
        between = range(self.layer[start] + 1, self.layer[end])
        first = len(self.layer)
        self.layer.extend(between)
        return [start, *range(first, first + len(between)), end]

    def order(self) -> None:
        """Sort the knots of each layer by their neighbours, in alternating sweeps; keep the best order."""
        best, fewest = [list(row) for row in self.rows], self._count_crossings()
        for sweep in range(SWEEPS):
            if not fewest:
                break
            forth = sweep % 2 == 0
            for row in self.rows if forth else reversed(self.rows):
                self._sort_row(row, self.parents if forth else self.children)
            self._swap_neighbours()
            if (crossings := self._count_crossings()) < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
        self.rows = best

    def _sort_row(self, row: list[int], neighbours: Mapping[int, list[int]]) -> None:
        ranks = self._ranks()
        wanted = {
            knot: _mean((ranks[one] for one in neighbours.get(knot, ())), missing=ranks[knot]) for knot in row
        }
        row.sort(key=wanted.__getitem__)

    def _swap_neighbours(self) -> None:
        """Swap adjacent knots of a layer where that removes crossings."""
        ranks = self._ranks()
        for row in self.rows:
            for at in range(len(row) - 1):
                one, other = row[at], row[at + 1]
                if self._count_crossings_of(one, other, ranks) > self._count_crossings_of(other, one, ranks):
                    row[at], row[at + 1] = other, one
                    ranks[one], ranks[other] = at + 1, at

    def _count_crossings_of(self, one: int, other: int, ranks: Mapping[int, int]) -> int:
        """How often the lines of two knots cross if the first is above the other."""
        return sum(
            ranks[a] > ranks[b]
            for near in (self.parents, self.children)
            for a in near.get(one, ())
            for b in near.get(other, ())
        )

    def _ranks(self) -> dict[int, int]:
        return {knot: rank for row in self.rows for rank, knot in enumerate(row)}

    def _count_crossings(self) -> int:
        ranks = self._ranks()
        return sum(
            _inversions(
                [ranks[child] for one in row for child in sorted(self.children[one], key=ranks.__getitem__)]
            )
            for row in self.rows
        )

    def place(self) -> None:
        """Place each knot vertically: near its neighbours, without overlap."""
        for row in self.rows:
            for rank, knot in enumerate(row):
                self.middle[knot] = rank * (BOX_HEIGHT + GAP_DOWN)
        for rows, neighbours in (
            (self.rows, self.parents),
            (self.rows[::-1], self.children),
            (self.rows, self.parents),
        ):
            for row in rows:
                self._settle_row(row, neighbours)

    def _settle_row(self, row: Sequence[int], neighbours: Mapping[int, list[int]]) -> None:
        wanted = [
            _mean((self.middle[one] for one in neighbours.get(knot, ())), missing=self.middle[knot])
            for knot in row
        ]
        gaps = [self._gap(one, other) for one, other in pairwise(row)]
        self.middle.update(zip(row, space_apart(wanted, gaps), strict=True))

    def _gap(self, one: int, other: int) -> float:
        """The least distance between the middles of two adjacent knots; a line needs less than a box."""
        return (self._height(one) + self._height(other)) / 2 + GAP_DOWN

    def _height(self, knot: int) -> int:
        return BOX_HEIGHT if knot < len(self.shape.before) else 0

    def drawing(self) -> Drawing:
        tops = [self.middle[knot] - self._height(knot) / 2 for row in self.rows for knot in row]
        up = MARGIN - min(tops, default=0)
        low = max(
            (self.middle[knot] + self._height(knot) / 2 for row in self.rows for knot in row), default=0
        )
        steps = len(self.shape.before)
        boxes = [
            Box(n, self.layer[n], _left_edge(self.layer[n]), round(self.middle[n] - BOX_HEIGHT / 2 + up))
            for n in range(steps)
        ]
        waits = len(self.routes) - len(self.shape.compensations)
        lines = [
            Arrow(way[0], way[-1], self._svg_path(way, up), n >= waits) for n, way in enumerate(self.routes)
        ]
        width = _left_edge(len(self.rows)) - GAP_ACROSS + MARGIN
        return Drawing(max(width, 0), round(low + up + MARGIN), boxes, lines)

    def _svg_path(self, way: Sequence[int], up: float) -> str:
        """The SVG path of an edge: curved between layers, straight across them."""
        y = round(self.middle[way[0]] + up)
        x = _left_edge(self.layer[way[0]]) + BOX_WIDTH
        parts = [f"M{x} {y}"]
        for knot in way[1:]:
            left, to = _left_edge(self.layer[knot]), round(self.middle[knot] + up)
            half = (x + left) // 2
            parts.append(f"C{half} {y} {half} {to} {left} {to}" if to != y else f"H{left}")
            x, y = left, to
            if knot != way[-1]:
                x = left + BOX_WIDTH
                parts.append(f"H{x}")
        return "".join(parts)


def space_apart(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Positions closest to `wanted` (least squares), in this order and at least `gaps` apart."""
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    # pool overlapping groups around their common mean
    groups: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        total, count = want - offset, 1
        while groups and groups[-1][0] / groups[-1][1] >= total / count:
            more, others = groups.pop()
            total, count = total + more, count + others
        groups.append((total, count))
    means = [total / count for total, count in groups for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=False)]


def _left_edge(layer: int) -> int:
    return MARGIN + layer * (BOX_WIDTH + GAP_ACROSS)


def _mean(values: Iterable[float], *, missing: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else missing


def _inversions(ranks: Sequence[int]) -> int:
    """How many pairs are out of order."""
    ahead: list[int] = []
    found = 0
    for rank in ranks:
        at = bisect_right(ahead, rank)
        found += len(ahead) - at
        ahead.insert(at, rank)
    return found
