"""The cache of workflows that this process has read before."""

import pytest

from fairlead.actions import workflow_cache
from fairlead.actions.workflow_cache import WorkflowCache
from fairlead.errors import WorkflowInvalid


def document(key: str, text: str = "") -> dict[str, object]:
    return {"key": key, "description": text, "steps": [{"name": "a", "definition": "greet"}]}


def test_an_equal_document_is_read_once() -> None:
    cache = WorkflowCache()
    first = cache.read(document("one"))

    assert cache.read(document("one")) is first
    assert cache.read(document("one")).nodes is first.nodes
    assert cache.read(document("two")).workflow.key == "two"


def test_an_invalid_document_is_refused_each_time() -> None:
    cache = WorkflowCache()
    circle = {"key": "w", "steps": [{"name": "a", "definition": "greet", "after": ["a"]}]}
    for _ in range(2):
        with pytest.raises(WorkflowInvalid, match="key"):
            cache.read({"steps": []})
        with pytest.raises(WorkflowInvalid, match="wait for each other"):
            _ = cache.read(circle).nodes


def test_the_cache_drops_what_was_read_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_cache, "MOST_WORKFLOWS", 2)
    cache = WorkflowCache()
    one, two = cache.read(document("one")), cache.read(document("two"))
    assert cache.read(document("one")) is one

    cache.read(document("three"))

    assert cache.read(document("one")) is one
    assert cache.read(document("two")) is not two


def test_the_documents_in_the_cache_have_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_cache, "MOST_BYTES", 1000)
    cache = WorkflowCache()
    large, other = document("large", "x" * 600), document("other", "x" * 600)
    kept = cache.read(large)
    assert cache.read(large) is kept

    again = cache.read(other)

    assert cache.read(other) is again
    assert cache.read(large) is not kept
    too_large = document("too_large", "x" * 999)
    assert cache.read(too_large) is not cache.read(too_large)
