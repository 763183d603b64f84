"""Steps of workflow documents that wait."""

from typing import Any

import pytest

from fairlead.errors import WorkflowInvalid
from fairlead.model.workflow.graph import build_graph
from fairlead.model.workflow.spec import build_document, read_workflow
from fairlead.model.workflow.waits import describe_work
from tests.tables import each_case

FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, "/steps/0: step 'x': must have exactly one of definition, sleep, wait_for_event"),
    ({"definition": "echo", "sleep": {"seconds": 1}}, "/steps/0: step 'x': must have exactly one of"),
    ({"sleep": {}}, "/steps/0/sleep: step 'x': must have either seconds or until"),
    ({"sleep": {"seconds": -1}}, "/steps/0/sleep/seconds: step 'x': must be between 0 and"),
    ({"sleep": {"seconds": "soon"}}, "/steps/0/sleep/seconds: step 'x': must be a number of seconds"),
    (
        {"sleep": {"until": "2030-01-01T08:00"}},
        "/steps/0/sleep/until: step 'x': must be a time with its zone",
    ),
    ({"sleep": {"seconds": "{{nothing.x}}"}}, "/steps/0/sleep"),
    (
        {"sleep": {"seconds": 1}, "payload": {"a": 1}},
        "/steps/0/payload: step 'x': a step with sleep has no payload",
    ),
    ({"sleep": {"seconds": 1}, "max_attempts": 2}, "a step with sleep has no max_attempts"),
    ({"sleep": {"days": 1}}, "/steps/0/sleep: object contains unknown field `days`"),
    ({"wait_for_event": {}}, "/steps/0/wait_for_event: object missing required field `event`"),
    (
        {"wait_for_event": {"event": ""}},
        "/steps/0/wait_for_event/event: step 'x': must be the name of an event",
    ),
    ({"wait_for_event": {"event": "e", "where": {"a": {"gt": "b"}}}}, "/steps/0/wait_for_event/where/a"),
    ({"wait_for_event": {"event": "e", "on_timeout": "wait"}}, 'must be "fail" or "continue"'),
    ({"approval": {"title": ""}}, "/steps/0/approval/title: step 'x': must be text of 1 to 200 characters"),
    (
        {"approval": {"title": "t", "roles": ["king"]}},
        "/steps/0/approval/roles: step 'x': unknown, or cannot answer",
    ),
    ({"approval": {"title": "t", "form": {"type": "array"}}}, "/steps/0/approval/form"),
    ({"approval": {"title": "t", "escalate": "e"}}, "/steps/0/approval/escalate: step 'x': needs timeout="),
    ({"approval": {"title": "t", "on_reject": "no"}}, "/steps/0/approval/on_reject"),
    ({"approval": {"title": "{{steps.y.output}}"}}, "there is no step 'y'"),
    ({"wait_for_event": {"event": "{{steps.y.output}}"}}, "there is no step 'y'"),
]


@each_case(("step", "message"), FAULTS)
def test_a_wait_that_cannot_be_is_refused(step: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkflowInvalid) as refused:
        build_graph(read_workflow({"key": "w", "steps": [{"name": "x", **step}]}))
    assert message in str(refused.value)


def test_a_document_stays_as_it_was_written() -> None:
    document = {
        "key": "w",
        "steps": [
            {"name": "rest", "sleep": {"seconds": 5}},
            {
                "name": "paid",
                "after": ["rest"],
                "wait_for_event": {
                    "event": "order.paid",
                    "where": {"order": "{{input.order}}"},
                    "timeout_seconds": 1.5,
                },
            },
        ],
    }
    workflow = read_workflow(document)
    assert build_document(workflow) == document
    assert [step.definition_key for step in workflow.steps] == ["ENGINE_SLEEP", "ENGINE_EVENT"]


@each_case(
    ("seconds", "words"),
    [
        (259_200.0, "3 d"),
        (90, "90 s"),
        (120, "2 min"),
        (0.5, "0.5 s"),
        (0, "0 s"),
        ("{{input.s}}", "{{input.s}} s"),
    ],
)
def test_a_sleep_is_described_in_its_largest_whole_unit(seconds: float | str, words: str) -> None:
    assert describe_work({"sleep": {"seconds": seconds}}) == f"sleep {words}"
