"""Drawings of graphs: no box on another, every line forward, few crossings."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.model.workflow.run import StepState, StepSummary
from fairlead.server.console.graph_layout import (
    BOX_HEIGHT,
    BOX_WIDTH,
    MOST_STEPS,
    Drawing,
    GraphShape,
    drawing_of,
    layers_of,
    space_apart,
)
from fairlead.server.console.workflow_drawing import summarize_run


@st.composite
def shapes(draw: st.DrawFn) -> GraphShape:
    """Any graph: steps come after some of those that stand before them, and a few are compensated."""
    size = draw(st.integers(1, 24))
    before = [
        draw(st.lists(st.integers(0, place - 1), unique=True, max_size=4)) if place else []
        for place in range(size)
    ]
    compensated = draw(st.lists(st.integers(0, size - 1), unique=True, max_size=3))
    return GraphShape.of(
        [*before, *[[] for _ in compensated]], {one: size + n for n, one in enumerate(compensated)}
    )


def drawn(shape: GraphShape) -> Drawing:
    found = drawing_of(shape)
    assert found is not None
    return found


def test_a_step_is_one_layer_behind_the_last_that_it_comes_after() -> None:
    shape = GraphShape.of([[], [0], [0, 1], [], []], {2: 4})

    assert layers_of(shape) == [0, 1, 2, 0, 3]


@settings(max_examples=60, deadline=None)
@given(shapes())
def test_boxes_stand_apart_within_the_drawing_and_lines_go_forward(shape: GraphShape) -> None:
    found = drawn(shape)

    assert [box.place for box in found.boxes] == list(range(len(shape.before)))
    for box in found.boxes:
        assert 0 <= box.x <= found.width - BOX_WIDTH
        assert 0 <= box.y <= found.height - BOX_HEIGHT
    columns: dict[int, list[int]] = {}
    for box in found.boxes:
        columns.setdefault(box.x, []).append(box.y)
    for tops in columns.values():
        ordered = sorted(tops)
        assert all(low - high > BOX_HEIGHT for high, low in pairwise(ordered))
    assert [(line.start, line.end) for line in found.lines] == shape.edges
    assert all(found.boxes[line.start].layer < found.boxes[line.end].layer for line in found.lines)
    assert {line.end for line in found.lines if line.is_compensation} == {
        end for _, end in shape.compensations
    }


def test_a_line_over_a_layer_keeps_clear_of_the_boxes_in_it() -> None:
    found = drawn(GraphShape.of([[], [0], [1, 0]], {}))

    [far] = [line for line in found.lines if (line.start, line.end) == (0, 2)]
    crossing = int(far.path.split("H")[0].split(" ")[-1])
    assert not found.boxes[1].y <= crossing <= found.boxes[1].y + BOX_HEIGHT


def test_lines_that_need_not_cross_do_not() -> None:
    # as written, each line of the second pair crosses one of the first
    found = drawn(GraphShape.of([[], [], [1], [0]], {}))

    assert (found.boxes[0].y < found.boxes[1].y) == (found.boxes[3].y < found.boxes[2].y)


def test_a_fork_stands_in_the_middle_of_its_branches() -> None:
    found = drawn(GraphShape.of([[], [0], [0], [0], [1, 2, 3]], {}))

    assert found.boxes[0].y == found.boxes[2].y == found.boxes[4].y


@given(st.lists(st.floats(-1000, 1000), min_size=1, max_size=12))
def test_what_pushes_each_other_stays_as_near_as_it_can(wanted: list[float]) -> None:
    found = space_apart(wanted, [10.0] * (len(wanted) - 1))

    assert all(b - a >= 10 - 1e-6 for a, b in pairwise(found))
    assert abs(sum(found) - sum(wanted)) < 1e-6 * len(wanted) * 1000


def test_what_nobody_could_read_is_not_drawn() -> None:
    many: list[list[int]] = [[] for _ in range(MOST_STEPS + 1)]
    carpet = [list(range(place)) for place in range(40)]

    assert drawing_of(GraphShape.of(many, {})) is None
    assert drawing_of(GraphShape.of(carpet, {})) is None
    assert drawing_of(GraphShape.of(many[1:], {})) is not None


def test_layers_whose_steps_are_all_in_one_state_are_told_as_one() -> None:
    """Wherever a long run stands, that is among what is told."""
    done, now, later = StepState.SUCCEEDED, StepState.RUNNING, StepState.WAITING
    marks = [
        StepSummary(
            place=place,
            name=f"s{place}",
            definition_key="anything",
            compensation=None,
            state=state,
        )
        for place, state in enumerate([done] * 200 + [now] + [later] * 99)
    ]

    picture = summarize_run([([place - 1] if place else [], [place]) for place in range(300)], marks)

    assert [(one.first, one.last, one.steps, dict(one.states)) for one in picture.layers] == [
        (1, 200, 200, {done: 200}),
        (201, 201, 1, {now: 1}),
        (202, 300, 99, {later: 99}),
    ]
    assert picture.more_layers == 0
