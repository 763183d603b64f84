"""Drawings of workflows and runs; for large ones, counts by layer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.model.workflow.run import RunStep, StepState, StepSummary
from fairlead.model.workflow.waits import WAIT_TYPES, describe_work
from fairlead.server.console.graph_layout import MOST_STEPS, Drawing, GraphShape, drawing_of
from fairlead.server.console.large_graph import LargeLayout, LargeShape, StepGroup, find_layers, lay_out

# For a graph that is too large to draw: the layers to show, and the steps to name in each state.
MOST_LAYERS = 40
MOST_NAMED = 12


class DrawnStep(msgspec.Struct, frozen=True):
    """A drawn step; `state` is None for a workflow without a run."""

    name: str
    definition: str
    when: Any = None
    each: str | None = None
    on_failure: Any = "stop"
    is_compensation: bool = False
    state: StepState | None = None


class LayerSummary(msgspec.Struct, frozen=True):
    """The number of steps in a layer, by state for a run; or in several layers whose steps share one state."""

    first: int
    last: int
    steps: int
    states: Mapping[StepState, int]

    def has_same_state(self, other: "LayerSummary") -> bool:
        """Whether all steps of both layers have one state, so that they can be merged."""
        return len(self.states) == 1 and self.states.keys() == other.states.keys()

    def merge_next(self, other: "LayerSummary") -> "LayerSummary":
        """This layer and the next as one."""
        steps = self.steps + other.steps
        return LayerSummary(self.first, other.last, steps, dict.fromkeys(self.states, steps))


class WorkflowPicture(msgspec.Struct, frozen=True):
    """A drawing and its steps; or, without a drawing, the layers."""

    drawing: Drawing | None
    steps: Sequence[DrawnStep]
    layers: Sequence[LayerSummary]
    # the layers after those in `layers`
    more_layers: int = 0

    @property
    def caption(self) -> str:
        """A text description of the drawing."""
        lines = 0 if self.drawing is None else len(self.drawing.lines)
        depth = 0 if self.drawing is None else 1 + max(box.layer for box in self.drawing.boxes)
        return (
            f"{_count_noun(len(self.steps), 'step')} in {_count_noun(depth, 'layer')} from left to right, with "
            f"{_count_noun(lines, 'arrow')}. The table of steps has the same content."
        )


def _count_noun(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def draw_workflow(spec: Mapping[str, Any]) -> WorkflowPicture:
    """Draw a published workflow."""
    steps = spec["steps"]
    before, undoes = _read_links(spec)
    if len(steps) > MOST_STEPS:
        return _summarize_layers(LargeShape.of(before, undoes), [None] * len(steps))
    others = set(undoes.values())
    pictured = [_drawn_step(step, is_compensation=place in others) for place, step in enumerate(steps)]
    return _draw_or_summarize(GraphShape.of(before, undoes), pictured, [None] * len(steps))


def _read_links(spec: Mapping[str, Any]) -> tuple[list[list[int]], dict[int, int]]:
    """The predecessors of each step, and the steps that compensate others."""
    steps = spec["steps"]
    places = {step["name"]: place for place, step in enumerate(steps)}
    undoes = {
        place: places[step["on_failure"]["compensate"]]
        for place, step in enumerate(steps)
        if isinstance(step.get("on_failure"), dict)
    }
    return [[places[name] for name in step.get("after", ())] for step in steps], undoes


def draw_run(steps: Sequence[RunStep]) -> WorkflowPicture:
    """Draw a run from all its steps."""
    shape = GraphShape.of(
        [step.before for step in steps],
        {step.place: step.compensation for step in steps if step.compensation is not None},
    )
    return _draw_or_summarize(
        shape, [_drawn_run_step(step) for step in steps], [step.state for step in steps]
    )


def summarize_run(
    groups: Iterable[tuple[Sequence[int], Sequence[int]]], marks: Sequence[StepSummary]
) -> WorkflowPicture:
    """Summarize a run that is too large to draw on the server."""
    return _summarize_layers(shape_of_run(groups, marks), [mark.state for mark in marks])


def shape_of_run(
    groups: Iterable[tuple[Sequence[int], Sequence[int]]], marks: Sequence[StepSummary]
) -> LargeShape:
    """The graph of a run's steps."""
    return LargeShape(
        len(marks),
        tuple(StepGroup(tuple(before), tuple(places)) for before, places in groups),
        tuple((mark.place, mark.compensation) for mark in marks if mark.compensation is not None),
    )


def list_notable_steps(marks: Sequence[StepSummary]) -> dict[StepState, Sequence[StepSummary]]:
    """The first failed and running steps of a run that is too large to draw."""
    return {
        state: [mark for mark in marks if mark.state is state][:MOST_NAMED]
        for state in (StepState.FAILED, StepState.RUNNING)
    }


def _draw_or_summarize(
    shape: GraphShape, steps: Sequence[DrawnStep], states: Sequence[StepState | None]
) -> WorkflowPicture:
    drawing = drawing_of(shape)
    if drawing is not None:
        return WorkflowPicture(drawing, steps, ())
    return _summarize_layers(LargeShape.of(shape.before, dict(shape.compensations)), states)


def _summarize_layers(shape: LargeShape, states: Sequence[StepState | None]) -> WorkflowPicture:
    layers = find_layers(shape)
    counts: list[Counter[StepState | None]] = [Counter() for _ in range(max(layers, default=-1) + 1)]
    for layer, state in zip(layers, states, strict=True):
        counts[layer][state] += 1
    told: list[LayerSummary] = []
    for number, found in enumerate(counts, 1):
        one = LayerSummary(
            number, number, found.total(), {state: found[state] for state in StepState if found[state]}
        )
        if told and told[-1].has_same_state(one):
            told[-1] = told[-1].merge_next(one)
        elif len(told) < MOST_LAYERS:
            told.append(one)
        else:
            break
    return WorkflowPicture(None, (), told, len(counts) - (told[-1].last if told else 0))


def _drawn_step(step: Mapping[str, Any], *, is_compensation: bool) -> DrawnStep:
    return DrawnStep(
        name=step["name"],
        definition=describe_work(step),
        when=step.get("when"),
        each="each" if step.get("for_each") is not None else None,
        on_failure=step.get("on_failure", "stop"),
        is_compensation=is_compensation,
    )


def _drawn_run_step(step: RunStep) -> DrawnStep:
    each = "each" if step.spec.get("for_each") is not None else None
    return DrawnStep(
        name=step.name,
        definition=step.work,
        when=step.spec.get("when"),
        each=each if step.items is None else f"{count_done_items(step):,}/{step.items:,}",
        on_failure=step.on_failure,
        is_compensation=step.is_compensation,
        state=step.state,
    )


def count_done_items(step: RunStep) -> int:
    """How many of a step's items have ended."""
    return (step.items or 0) - step.remaining


# Graphs that the browser draws

# The digits of states in a message to the browser.
_DIGITS = {state: str(number) for number, state in enumerate(StepState)}


class LargeGraph(msgspec.Struct, frozen=True):
    """A graph as the browser draws it. `states` has a digit for each step, in the order of StepState; empty without a run."""

    layout: LargeLayout
    names: Sequence[str]
    # the distinct keys of definitions, and for each step the index of its key
    keys: Sequence[str]
    key: Sequence[int]
    states: str


def write_states(states: Iterable[StepState]) -> str:
    """A digit for each step."""
    return "".join(_DIGITS[state] for state in states)


def lay_out_workflow(spec: Mapping[str, Any]) -> LargeGraph:
    """Lay out a published workflow. It may take seconds."""
    steps = spec["steps"]
    layout = lay_out(LargeShape.of(*_read_links(spec)))
    return _build_graph(layout, [(one["name"], describe_work(one)) for one in steps], "")


def lay_out_run(
    groups: Iterable[tuple[Sequence[int], Sequence[int]]], marks: Sequence[StepSummary]
) -> LargeGraph:
    """Lay out a run. It may take seconds."""
    layout = lay_out(shape_of_run(groups, marks))
    named = [(mark.name, WAIT_TYPES.get(mark.definition_key, mark.definition_key)) for mark in marks]
    return _build_graph(layout, named, write_states(mark.state for mark in marks))


def _build_graph(layout: LargeLayout, named: Sequence[tuple[str, str]], states: str) -> LargeGraph:
    numbers: dict[str, int] = {}
    key = [numbers.setdefault(definition, len(numbers)) for _, definition in named]
    return LargeGraph(layout, [name for name, _ in named], list(numbers), key, states)
