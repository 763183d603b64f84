"""The graph of a workflow: its dependencies, and the check that every step can run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from fairlead.errors import FairleadError, FilterInvalid, TemplateInvalid
from fairlead.model.template.path import Path
from fairlead.model.template.spec import compile_template
from fairlead.model.workflow.spec import Step, Workflow, WorkflowFaults
from fairlead.model.workflow.step import (
    ITEM_ROOTS,
    PREVIOUS,
    ROOTS,
    STEPS,
    build_recipe,
    iterate_filter_paths,
)

# the fields of a step that other steps may use
STEP_FIELDS = ("output", "status", "error")
MAX_IN_LINE = 2000


class Node(msgspec.Struct, frozen=True):
    """A step in the graph: the steps that it waits for, the steps that wait for it, and its compensation."""

    step: Step
    before: tuple[int, ...]
    next: tuple[int, ...]
    compensation: int | None
    # it has no dependencies, since it runs only when another step fails
    is_compensation: bool


def build_graph(workflow: Workflow) -> list[Node]:
    """Build the graph; WorkflowInvalid names each step that cannot run, and why."""
    trouble = WorkflowFaults([])
    graph = _Graph(workflow.steps, trouble)
    trouble.settle()
    graph.check_compensations()
    known = graph.find_ended_before(graph.sort_steps())
    for place, step in enumerate(workflow.steps):
        _LookupCheck(step, f"/steps/{place}", graph.places, known[place], trouble).check()
    _check_output(workflow, graph.places, trouble)
    trouble.settle()
    return graph.nodes()


class _Graph:
    """The steps by index, and the edges between them."""

    def __init__(self, steps: Sequence[Step], trouble: WorkflowFaults) -> None:
        self.steps = steps
        self.trouble = trouble
        self.places = self._index_names()
        self.before = [self._find_parents(place) for place in range(len(steps))]
        self.undoes = [self._find_compensation(place) for place in range(len(steps))]
        self.compensations = {place for place in self.undoes if place is not None}
        # Steps that wait for the same steps, by these: between two layers of a hundred steps, where each waits for all of
        # the layer before, there are ten thousand edges and one group.
        self.groups: dict[frozenset[int], list[int]] = {}
        self.group_of = [frozenset(parents) for parents in self.before]
        for place, parents in enumerate(self.group_of):
            self.groups.setdefault(parents, []).append(place)
        self.after = self._find_children()

    def _index_names(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for place, step in enumerate(self.steps):
            if step.name in places:
                self.trouble.at(f"/steps/{place}/name", f"there are two steps {step.name!r}")
            places.setdefault(step.name, place)
        return places

    def _find_parents(self, place: int) -> tuple[int, ...]:
        step = self.steps[place]
        with suppress(KeyError):
            parents = tuple(map(self.places.__getitem__, step.after))
            if len(set(parents)) == len(parents):
                return parents
        for name in step.after:
            if name not in self.places:
                self.trouble.at(
                    f"/steps/{place}/after", f"step {step.name!r} is after {name!r}, which does not exist"
                )
        if len(set(step.after)) < len(step.after):
            self.trouble.at(f"/steps/{place}/after", f"step {step.name!r} names a step twice")
        return tuple(self.places[name] for name in step.after if name in self.places)

    def _find_children(self) -> list[list[int]]:
        after: list[list[int]] = [[] for _ in self.steps]
        for parents, children in self.groups.items():
            for parent in parents:
                after[parent] += children
        for children in after:
            children.sort()
        return after

    def _find_compensation(self, place: int) -> int | None:
        step = self.steps[place]
        name = step.compensation
        if name is None:
            return None
        if name not in self.places or name == step.name:
            self.trouble.at(
                f"/steps/{place}/on_failure",
                f"step {step.name!r} is compensated by {name!r}, which is not another step",
            )
        return self.places.get(name)

    def check_compensations(self) -> None:
        for place in sorted(self.compensations):
            if self.before[place] or self.after[place] or self.undoes[place] is not None:
                self.trouble.at(
                    f"/steps/{place}",
                    f"step {self.steps[place].name!r} compensates another: it cannot have after, no step can be after it, "
                    "and it cannot have a compensation",
                )

    def sort_steps(self) -> list[int]:
        """The indexes in topological order: each step after its dependencies."""
        waits = {parents: len(parents) for parents in self.groups}
        groups_after: list[list[frozenset[int]]] = [[] for _ in self.steps]
        for parents in self.groups:
            for parent in parents:
                groups_after[parent].append(parents)
        order = list(self.groups.get(frozenset(), ()))
        for place in order:  # it grows meanwhile
            for parents in groups_after[place]:
                waits[parents] -= 1
                if not waits[parents]:
                    order += self.groups[parents]
        if len(order) < len(self.steps):
            circle = self._find_cycle(set(range(len(self.steps))).difference(order))
            names = " → ".join(self.steps[place].name for place in circle)
            self.trouble.at(f"/steps/{circle[0]}/after", f"these steps wait for each other: {names}")
            self.trouble.refuse()
        self._check_length(order)
        return order

    def _check_length(self, order: Sequence[int]) -> None:
        """Limit the longest chain: all skipped steps of a chain end in one transaction."""
        levels = [0] * len(self.steps)
        for parents, children in self._iterate_groups(order):
            level = 1 + max((levels[parent] for parent in parents), default=0)
            for child in children:
                levels[child] = level
        if max(levels) > MAX_IN_LINE:
            self.trouble.at(
                "/steps",
                f"the longest chain has {max(levels)} steps, and the limit is {MAX_IN_LINE}",
            )
            self.trouble.refuse()

    def _iterate_groups(self, order: Sequence[int]) -> Iterator[tuple[frozenset[int], list[int]]]:
        """The groups of steps in topological order, each with the steps that it waits for."""
        for parents in dict.fromkeys(self.group_of[place] for place in order):
            yield parents, self.groups[parents]

    def _find_cycle(self, stuck: set[int]) -> list[int]:
        """A cycle of steps; the first one is repeated at the end."""
        place, way = min(stuck), list[int]()
        while place not in way:
            way.append(place)
            place = next(parent for parent in self.before[place] if parent in stuck)
        return [place, *reversed(way[way.index(place) :])]

    def find_ended_before(self, order: Sequence[int]) -> list[int]:
        """For each step, the steps that have ended when it starts, as a bit set."""
        known = [0] * len(self.steps)
        for parents, children in self._iterate_groups(order):
            before = 0
            for parent in parents:
                before |= known[parent] | (1 << parent)
            for child in children:
                known[child] = before
        shared: dict[int, int] = {}
        for place, compensation in enumerate(self.undoes):
            if compensation is not None:
                seen = known[place] | (1 << place)
                shared[compensation] = shared.get(compensation, seen) & seen
        for compensation, seen in shared.items():
            known[compensation] = seen
        return known

    def nodes(self) -> list[Node]:
        return [
            Node(step, self.before[n], tuple(self.after[n]), self.undoes[n], n in self.compensations)
            for n, step in enumerate(self.steps)
        ]


class _LookupCheck(msgspec.Struct, frozen=True):
    """Checks that every value that a step uses will exist."""

    step: Step
    at: str
    places: dict[str, int]
    known: int
    trouble: WorkflowFaults

    def check(self) -> None:
        try:
            recipe = build_recipe(self.step)
        except (TemplateInvalid, FilterInvalid) as error:
            _add_faults(self.trouble, error, self.at, f"step {self.step.name!r}: ")
            return
        for path in recipe.paths:
            if why := self._find_fault(path):
                self.trouble.at(self.at, f"step {self.step.name!r} uses {path}: {why}")
        for path in () if recipe.when is None else iterate_filter_paths(recipe.when):
            if path.segments[0] in ITEM_ROOTS or (path.segments[0] == PREVIOUS and len(self.step.after) != 1):
                self.trouble.at(
                    f"{self.at}/when",
                    f"step {self.step.name!r} uses {path}, which a condition cannot use",
                )

    def _find_fault(self, path: Path) -> str | None:
        root, *rest = path.segments
        if root not in (*ROOTS, *ITEM_ROOTS, PREVIOUS):
            return f"begin the path with one of {', '.join(ROOTS)}"
        if root == PREVIOUS and (not rest or rest[0] not in STEP_FIELDS):
            return _KNOWN_FIELDS
        return _find_lookup_fault(rest, self.places, self.known) if root == STEPS else None


_KNOWN_FIELDS = f"a step has {', '.join(STEP_FIELDS)}"


def _find_lookup_fault(rest: Sequence[str], places: dict[str, int], known: int) -> str | None:
    if not rest:
        return "name a step"
    name, *more = rest
    if name not in places:
        return f"there is no step {name!r}"
    if not known >> places[name] & 1:
        return f"{name!r} may not have ended by then; add it to after"
    return None if more and more[0] in STEP_FIELDS else _KNOWN_FIELDS


def _check_output(workflow: Workflow, places: dict[str, int], trouble: WorkflowFaults) -> None:
    if workflow.output is None:
        return
    try:
        paths: Iterator[Path] = iter(compile_template(workflow.output, ROOTS).paths)
    except TemplateInvalid as error:
        _add_faults(trouble, error, "/output", "")
        return
    everything = (1 << len(places)) - 1
    for path in paths:
        root, *rest = path.segments
        if root == STEPS and (why := _find_lookup_fault(rest, places, everything)):
            trouble.at("/output", f"uses {path}: {why}")


def _add_faults(trouble: WorkflowFaults, error: FairleadError, at: str, prefix: str) -> None:
    for fault in error.faults:
        trouble.at(f"{at}{fault.path}", f"{prefix}{fault.message}")
