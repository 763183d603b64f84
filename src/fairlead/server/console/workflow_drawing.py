"""Drawings of workflows and runs; for large ones, counts by layer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fairlead.model.workflow.run import Run, RunStep, StepState, StepSummary
from fairlead.server.console.graph_layout import Drawing, GraphShape, drawing_of, layers_of

# For a graph that is too large to draw: the layers to show, and the steps to name in each state.
MOST_LAYERS = 40
MOST_NAMED = 12
# The unit of the time bars: thousandths of a run.
WHOLE = 1000


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
    places = {step["name"]: place for place, step in enumerate(steps)}
    undoes = {
        place: places[step["on_failure"]["compensate"]]
        for place, step in enumerate(steps)
        if isinstance(step.get("on_failure"), dict)
    }
    shape = GraphShape.of([[places[name] for name in step.get("after", ())] for step in steps], undoes)
    others = set(undoes.values())
    pictured = [_drawn_step(step, is_compensation=place in others) for place, step in enumerate(steps)]
    return _draw_or_summarize(shape, pictured, [None] * len(steps))


def draw_run(steps: Sequence[RunStep]) -> WorkflowPicture:
    """Draw a run from all its steps."""
    shape = GraphShape.of(
        [step.before for step in steps],
        {step.place: step.compensation for step in steps if step.compensation is not None},
    )
    return _draw_or_summarize(
        shape, [_drawn_run_step(step) for step in steps], [step.state for step in steps]
    )


def summarize_run(marks: Sequence[StepSummary]) -> WorkflowPicture:
    """Summarize a run that is too large to draw."""
    shape = GraphShape.of(
        [mark.before for mark in marks],
        {mark.place: mark.compensation for mark in marks if mark.compensation is not None},
    )
    return _summarize_layers(shape, [mark.state for mark in marks])


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
    return _summarize_layers(shape, states) if drawing is None else WorkflowPicture(drawing, steps, ())


def _summarize_layers(shape: GraphShape, states: Sequence[StepState | None]) -> WorkflowPicture:
    layers = layers_of(shape)
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
        definition=step["definition"],
        when=step.get("when"),
        each="each" if step.get("for_each") is not None else None,
        on_failure=step.get("on_failure", "stop"),
        is_compensation=is_compensation,
    )


def _drawn_run_step(step: RunStep) -> DrawnStep:
    each = "each" if step.spec.get("for_each") is not None else None
    return DrawnStep(
        name=step.name,
        definition=step.definition_key,
        when=step.spec.get("when"),
        each=each if step.items is None else f"{count_done_items(step):,}/{step.items:,}",
        on_failure=step.on_failure,
        is_compensation=step.is_compensation,
        state=step.state,
    )


def count_done_items(step: RunStep) -> int:
    """How many of a step's items have ended."""
    return (step.items or 0) - step.remaining


# Time spans


class StepSpan(msgspec.Struct, frozen=True):
    """A step's part of its run's time, in thousandths, and its duration."""

    start: int
    width: int
    seconds: float


def step_span(run: Run, step: RunStep) -> StepSpan | None:
    """A step's span within its run; None if it has not started."""
    if step.started_at is None:
        return None
    now = datetime.now(UTC)
    whole = max(((run.finished_at or now) - run.created_at).total_seconds(), 0.001)
    seconds = max(0.0, ((step.finished_at or now) - step.started_at).total_seconds())
    start = min(WHOLE - 5, max(0, round((step.started_at - run.created_at).total_seconds() / whole * WHOLE)))
    return StepSpan(start, max(5, min(WHOLE - start, round(seconds / whole * WHOLE))), seconds)
