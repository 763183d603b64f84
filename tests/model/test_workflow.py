"""What a workflow may say, and what is refused with the step named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import WorkflowInvalid
from fairlead.model.workflow.graph import build_graph
from fairlead.model.workflow.spec import MAX_STEPS, build_document, read_workflow
from fairlead.model.workflow.step import build_recipe
from tests.tables import each_case


def flow(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"key": "w", "steps": [{"definition": "anything", **step} for step in steps], **more}


def refused(document: Any) -> WorkflowInvalid:
    with pytest.raises(WorkflowInvalid) as caught:
        build_graph(read_workflow(document))
    return caught.value


def test_a_workflow_is_read_and_written_as_it_was() -> None:
    document = flow(
        {
            "name": "a",
            "payload": {"x": "{{input.x}}"},
            "max_attempts": 2,
            "timeout_seconds": 60,
            "priority": 3,
        },
        {
            "name": "b",
            "after": ["a"],
            "when": {"steps.a.output.ok": True},
            "on_failure": {"compensate": "undo"},
        },
        {
            "name": "c",
            "after": ["a", "b"],
            "for_each": "{{steps.a.output.list}}",
            "payload": {"i": "{{item}}"},
        },
        {"name": "undo", "payload": {"why": "{{steps.b.error}}"}},
        output={"all": "{{steps.c.output}}"},
        input_schema={"type": "object"},
    )
    workflow = read_workflow(document)

    assert build_document(workflow) == document
    nodes = build_graph(workflow)
    assert [(node.before, node.next) for node in nodes] == [
        ((), (1, 2)),
        ((0,), (2,)),
        ((0, 1), ()),
        ((), ()),
    ]
    assert [node.compensation for node in nodes] == [None, 3, None, None]
    assert [node.is_compensation for node in nodes] == [False, False, False, True]
    assert build_recipe(workflow.steps[2]).needs == {"a"}


@each_case(
    ("steps", "path", "words"),
    [
        ([{"name": "a"}, {"name": "a"}], "/steps/1/name", "two steps 'a'"),
        ([{"name": "a", "after": ["x"]}], "/steps/0/after", "step 'a' is after 'x', which does not exist"),
        ([{"name": "a"}, {"name": "b", "after": ["a", "a"]}], "/steps/1/after", "names a step twice"),
        ([{"name": "a", "after": ["a"]}], "/steps/0/after", "wait for each other: a → a"),
        (
            [{"name": "a", "after": ["c"]}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["b"]}],
            "/steps/0/after",
            "a → b → c → a",
        ),
        ([{"name": "a", "payload": {"x": "{{steps.b.output}}"}}], "/steps/0", "there is no step 'b'"),
        (
            [{"name": "a", "payload": {"x": "{{steps.b.output}}"}}, {"name": "b"}],
            "/steps/0",
            "'b' may not have ended by then; add it to after",
        ),
        (
            [{"name": "a"}, {"name": "b", "after": ["a"], "payload": {"x": "{{steps.a}}"}}],
            "/steps/1",
            "output, status",
        ),
        (
            [{"name": "a", "payload": {"x": "{{event.y}}"}}],
            "/steps/0/payload/x",
            "step 'a': event.y begins with none of",
        ),
        ([{"name": "a", "payload": {"x": "{{item}}"}}], "/steps/0/payload/x", "begins with none of"),
        (
            [{"name": "a", "payload": {"x": "{{previous.output}}"}}],
            "/steps/0/payload/x",
            "begins with none of",
        ),
        ([{"name": "a", "when": {"steps.zz.output": 1}}], "/steps/0", "there is no step 'zz'"),
        (
            [{"name": "a", "when": {"item": 1}, "for_each": [1]}],
            "/steps/0/when",
            "which a condition cannot use",
        ),
        ([{"name": "a", "when": {"input.x": {"like": 1}}}], "/steps/0/when/input.x/like", "step 'a'"),
        ([{"name": "a", "on_failure": "explode"}], "/steps/0/on_failure", '"stop", "continue"'),
        (
            [{"name": "a", "on_failure": {"compensate": "b"}}],
            "/steps/0/on_failure",
            "which is not another step",
        ),
        (
            [{"name": "a", "on_failure": {"compensate": "b"}}, {"name": "b", "after": ["a"]}],
            "/steps/1",
            "it cannot have after",
        ),
        ([{"name": "no spaces"}], "/steps/0/name", "must begin with a letter or _"),
        ([{"name": "a", "max_items": 0}], "/steps/0/max_items", "between 1 and"),
        ([{"name": "a", "timeout_seconds": 0}], "/steps/0/timeout_seconds", "between 1 and"),
        ([{"name": "a", "tiemout": 1}], "/steps/0", "tiemout"),
        ([{"name": "a", "expires_in_seconds": 0}], "/steps/0/expires_in_seconds", ""),
        ([{"name": "a", "tags": ["a", "a"]}], "/steps/0/tags", ""),
        ([{"name": "a", "debounce": {"key": "k", "seconds": 1}}], "/steps/0", "debounce"),
        ([{"name": "a", "unique_for": 60}], "/steps/0", "unique_for"),
        ([{"name": "a", "priority": "high"}], "/steps/0/priority", "expected"),
        ([], "/steps", f"1 to {MAX_STEPS} steps"),
    ],
)
def test_what_cannot_run_is_refused_with_its_step(steps: Any, path: str, words: str) -> None:
    error = refused(flow(*steps))

    assert error.faults[0].path == path
    assert words in error.faults[0].message


@each_case("document", [None, [], "w", {}, {"key": "w"}, flow({"name": "a"}, key="1")])
def test_what_is_no_workflow_is_refused(document: Any) -> None:
    assert refused(document).code == "workflow_invalid"


def test_an_output_may_look_at_every_step_and_no_other() -> None:
    build_graph(
        read_workflow(
            flow({"name": "a"}, {"name": "b"}, output={"x": ["{{steps.a.output}}", "{{steps.b.status}}"]})
        )
    )

    assert "there is no step 'c'" in str(refused(flow({"name": "a"}, output="{{steps.c.output}}")))


def test_a_compensation_sees_what_is_over_whichever_step_failed() -> None:
    steps = [{"name": name, "on_failure": {"compensate": "undo"}} for name in ("a", "b")]

    assert "'a' may not have ended" in str(
        refused(flow(*steps, {"name": "undo", "payload": {"x": "{{steps.a.error}}"}}))
    )


@given(st.integers(2, 30), st.randoms(use_true_random=False))
def test_any_graph_without_a_circle_is_one_and_any_with_is_not(size: int, chance: Any) -> None:
    before = {
        n: sorted({chance.randrange(n) for _ in range(chance.randrange(3))}) if n else [] for n in range(size)
    }
    names = [f"s{n}" for n in range(size)]
    steps: list[dict[str, Any]] = [
        {"name": names[n], "after": [names[m] for m in before[n]]} for n in range(size)
    ]
    chance.shuffle(steps)

    nodes = build_graph(read_workflow(flow(*steps)))

    assert {(node.step.name, nodes[m].step.name) for node in nodes for m in node.before} == {
        (names[n], names[m]) for n in range(size) for m in before[n]
    }
    late = chance.randrange(1, size)
    early = before[late][0] if before[late] else None
    if early is not None:
        next(step for step in steps if step["name"] == names[early])["after"].append(names[late])
        assert "wait for each other" in str(refused(flow(*steps)))
