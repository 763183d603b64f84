"""Workflows that this process has read before: most runs are of a workflow that was started already."""

import threading
from functools import cached_property
from typing import Any

from fairlead.model.secrets.sealed_payload import has_sealed
from fairlead.model.workflow.graph import Node, build_graph
from fairlead.model.workflow.spec import Workflow, decode_workflow, encode_workflow

MOST_WORKFLOWS = 256
# The most bytes of all documents. As Python objects, JSON takes up to 25 times its size as text.
MOST_BYTES = 2_097_152


class CheckedWorkflow:
    """A workflow whose fields were checked; its graph is checked and built when it is first used."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The steps with their dependencies; WorkflowInvalid if one of them cannot run."""
        return tuple(build_graph(self.workflow))

    @cached_property
    def has_sealed(self) -> bool:
        """Whether a step has a sealed literal."""
        return any(has_sealed([step.payload, step.for_each]) for step in self.workflow.steps)


class WorkflowCache:
    """Keeps the workflows that were read last, by the text of their documents."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, CheckedWorkflow] = {}
        self._size = 0

    def read(self, document: Any) -> CheckedWorkflow:
        """Read a workflow from JSON and check each field, unless that was done before; WorkflowInvalid has every fault."""
        text = encode_workflow(document)
        with self._lock:
            known = self._known.get(text)
        if known is None:
            known = CheckedWorkflow(decode_workflow(text))
        if len(text) <= MOST_BYTES:
            with self._lock:
                self._keep(text, known)
        return known

    def _keep(self, text: bytes, known: CheckedWorkflow) -> None:
        """Keep it as the last one, and drop the first ones while there are too many."""
        if self._known.pop(text, None) is None:
            self._size += len(text)
        self._known[text] = known
        while self._size > MOST_BYTES or len(self._known) > MOST_WORKFLOWS:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._size -= len(oldest)
