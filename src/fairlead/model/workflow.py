"""A workflow: steps that are jobs, what each waits for, and what it takes from the others."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from fairlead.errors import FairleadError, Fault, WorkflowInvalid
from fairlead.model.definition import KEY, KEY_WORDS, MAX_FAULTS, validator
from fairlead.model.path import Flaw
from fairlead.model.payload import encode, unreadable
from fairlead.model.place import Place, read
from fairlead.model.request import MAX_ATTEMPTS, MAX_PRIORITY

# the definition of jobs that run a workflow and wait for its end
ENGINE_RUN = "ENGINE_RUN"
MAX_STEPS = 10_000
MAX_ITEMS = 10_000
MAX_TIMEOUT_SECONDS = 604_800
MAX_BYTES = 8_388_608
MAX_DEPTH = 80
MAX_TEXT = 1000
# what stands for them where a workflow is named: /workflows/runs
RESERVED = "runs"
STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
STEP_NAME_WORDS = "must begin with a letter or _ and have up to 64 letters, digits, underscores and hyphens"
_PLACE = re.compile(r" - at `(?P<path>[^`]*)`$")


class OnFailure(StrEnum):
    """What becomes of a run when one of its steps fails for good."""

    STOP = "stop"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class Compensate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step that undoes what was done, when this one fails."""

    compensate: str


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step as it is written down."""

    name: str
    definition: str
    payload: Any = {}
    after: tuple[str, ...] = ()
    # a filter over the same places as the payload's: where it does not match, the step is skipped
    when: Any = None
    # a list, or a place where one is: the step is a job for each item
    for_each: Any = None
    max_items: int = MAX_ITEMS
    on_failure: str | Compensate = OnFailure.STOP.value
    max_attempts: int | None = None
    timeout_seconds: int | None = None
    priority: int | None = None
    host_id: str | None = None
    resource_id: str | None = None

    @property
    def failing(self) -> OnFailure:
        return OnFailure.COMPENSATE if isinstance(self.on_failure, Compensate) else OnFailure(self.on_failure)

    @property
    def compensation(self) -> str | None:
        return self.on_failure.compensate if isinstance(self.on_failure, Compensate) else None


class Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow as it is written down. Read by `workflow_of`; whether it can run is told by `graph_of`."""

    key: str
    steps: tuple[Step, ...]
    description: str = ""
    input_schema: Any = True
    # a template of the run's output; without one it is the outputs of the steps that nobody waits for
    output: Any = None


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong with a workflow, gathered."""

    faults: list[Fault]

    def at(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))
        if len(self.faults) >= MAX_FAULTS:
            self.refuse()

    def settle(self) -> None:
        if self.faults:
            self.refuse()

    def refuse(self) -> NoReturn:
        first = self.faults[0]
        raise WorkflowInvalid(
            f"The workflow is not valid: {first.path or '/'}: {first.message}.", self.faults
        )


def workflow_of(document: Any) -> Workflow:
    """The workflow that a JSON document describes, each field checked by itself; WorkflowInvalid names the others."""
    workflow = _read(document)
    trouble = Trouble([])
    if not KEY.fullmatch(workflow.key) or workflow.key == RESERVED:
        trouble.at("/key", f"{KEY_WORDS}, and not be {RESERVED!r}")
    _check_text(trouble, "/description", workflow.description)
    if not 1 <= len(workflow.steps) <= MAX_STEPS:
        trouble.at("/steps", f"a workflow has 1 to {MAX_STEPS} steps")
    try:
        validator(workflow.input_schema)
    except FairleadError as error:
        trouble.at("/input_schema", error.message.removeprefix("arg_schema "))
    for place, step in enumerate(workflow.steps):
        _check_step(trouble, f"/steps/{place}", step)
    trouble.settle()
    return workflow


def document_of(workflow: Workflow) -> dict[str, Any]:
    """The workflow as it is read back from JSON: with lists where it has tuples."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(workflow))
    return document


def _read(document: Any) -> Workflow:
    try:
        _, text = encode(document, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except FairleadError as error:
        raise WorkflowInvalid(f"The workflow cannot be kept: {error.message}", error.faults) from None
    if not isinstance(document, Mapping):
        Trouble([Fault("", "must be an object with key and steps")]).refuse()
    try:
        return msgspec.json.decode(text, type=Workflow)
    except msgspec.ValidationError as error:
        Trouble([_fault_of(str(error))]).refuse()


def _fault_of(told: str) -> Fault:
    """Where msgspec found something wrong, as a JSON pointer."""
    found = _PLACE.search(told)
    path = "" if found is None else re.sub(r"\[(\d+|\.\.\.)\]", r".\1", found["path"]).removeprefix("$")
    message = told if found is None else told[: found.start()]
    return Fault(path.replace(".", "/"), message[:1].lower() + message[1:])


def _check_step(trouble: Trouble, at: str, step: Step) -> None:
    if not STEP_NAME.fullmatch(step.name):
        trouble.at(f"{at}/name", f"{step.name[:80]!r} {STEP_NAME_WORDS}")
    if not KEY.fullmatch(step.definition):
        trouble.at(f"{at}/definition", KEY_WORDS)
    if isinstance(step.on_failure, str) and step.on_failure not in ("stop", "continue"):
        trouble.at(f"{at}/on_failure", 'must be "stop", "continue" or {"compensate": "a step"}')
    bounds = {
        "max_items": (step.max_items, 1, MAX_ITEMS),
        "max_attempts": (step.max_attempts, 1, MAX_ATTEMPTS),
        "timeout_seconds": (step.timeout_seconds, 1, MAX_TIMEOUT_SECONDS),
        "priority": (step.priority, -MAX_PRIORITY, MAX_PRIORITY),
    }
    for name, (value, lowest, highest) in bounds.items():
        if value is not None and not lowest <= value <= highest:
            trouble.at(f"{at}/{name}", f"step {step.name!r}: must be between {lowest} and {highest}")
    _check_shapes(trouble, at, step)


def _check_shapes(trouble: Trouble, at: str, step: Step) -> None:
    """What no run could fill in, whatever its input."""
    told = f"step {step.name!r}: must be"
    if not isinstance(step.payload, dict) and not _is_place(step.payload):
        trouble.at(f"{at}/payload", f"{told} an object, or a place such as {{{{item}}}}")
    if isinstance(step.for_each, list):
        if len(step.for_each) > step.max_items:
            trouble.at(f"{at}/for_each", f"{told} at most {step.max_items} items, as max_items says")
    elif step.for_each is not None and not _is_place(step.for_each):
        trouble.at(f"{at}/for_each", f"{told} a list, or a place such as {{{{input.names}}}}")
    for name, value in (("host_id", step.host_id), ("resource_id", step.resource_id)):
        if value is not None and not _is_place(value) and not _is_id(value):
            trouble.at(f"{at}/{name}", f"{told} a UUID, or a place such as {{{{input.{name}}}}}")


def _is_place(value: Any) -> bool:
    try:
        return isinstance(value, str) and isinstance(read(value), Place)
    except Flaw:
        return True  # what is wrong with it is told where templates are read


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _check_text(trouble: Trouble, at: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        trouble.at(at, f"must have at most {MAX_TEXT} characters")
    elif why := unreadable(text):
        trouble.at(at, why)
