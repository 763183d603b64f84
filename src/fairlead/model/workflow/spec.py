"""A workflow: steps that are jobs or waits, their dependencies, and the values they use from each other."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from fairlead.errors import FairleadError, Fault, WorkflowInvalid
from fairlead.model.definition import KEY, KEY_WORDS, MAX_FAULTS, compile_schema
from fairlead.model.job import MAX_ATTEMPTS, MAX_PRIORITY
from fairlead.model.payload import encode, find_storage_flaw
from fairlead.model.request import find_option_flaw
from fairlead.model.template.path import Flaw
from fairlead.model.template.placeholder import Placeholder, parse_template_string
from fairlead.model.workflow.waits import WAIT_KEYS, ApprovalStep, EventStep, SleepStep

# the key of the definition whose jobs run a workflow and wait for its end
ENGINE_RUN = "ENGINE_RUN"
# All definitions whose jobs act with the rights of workflows: to enqueue one needs the right to start a workflow.
ENGINE_KEYS = frozenset({ENGINE_RUN, *WAIT_KEYS.values()})
MAX_STEPS = 10_000
MAX_ITEMS = 10_000
MAX_TIMEOUT_SECONDS = 604_800
MAX_BYTES = 8_388_608
MAX_DEPTH = 80
MAX_TEXT = 1000
# not allowed as a key, since /workflows/runs is a route
RESERVED = "runs"
STEP_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
STEP_NAME_WORDS = "must begin with a letter or _ and have up to 64 letters, digits, underscores and hyphens"
# What a step can be.
WORK = ("definition", *WAIT_KEYS)
_OF_JOBS = ("payload", "max_attempts", "timeout_seconds", "expires_in_seconds", "host_id", "resource_id")
_PLACE = re.compile(r" - at `(?P<path>[^`]*)`$")


class OnFailure(StrEnum):
    """What a run does when one of its steps has finally failed."""

    STOP = "stop"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class Compensate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The step that runs when this one fails, to undo its effects."""

    compensate: str


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step of a workflow document: a job of a definition, or a wait."""

    name: str
    definition: str | None = None
    payload: Any = {}
    after: tuple[str, ...] = ()
    # a filter over the same values as the payload's template: the step is skipped if it does not match
    when: Any = None
    # a list, or a placeholder for one: the step creates a job for each item
    for_each: Any = None
    max_items: int = MAX_ITEMS
    on_failure: str | Compensate = OnFailure.STOP.value
    max_attempts: int | None = None
    timeout_seconds: int | None = None
    # a job of the step that has not started so long after the step did is canceled
    expires_in_seconds: float | None = None
    tags: tuple[str, ...] = ()
    priority: int | None = None
    host_id: str | None = None
    resource_id: str | None = None
    # instead of a definition: what the step waits for
    sleep: SleepStep | None = None
    wait_for_event: EventStep | None = None
    approval: ApprovalStep | None = None

    @property
    def wait(self) -> SleepStep | EventStep | ApprovalStep | None:
        """What the step waits for, if it is not a job of a definition of its own."""
        return self.sleep or self.wait_for_event or self.approval

    @property
    def definition_key(self) -> str:
        """The definition of its jobs: a wait is a job, too, of a definition of Fairlead."""
        return find_definition_key(self)

    @property
    def template(self) -> Any:
        """The template of its jobs' payloads."""
        if self.approval is not None:
            # people find the approval by the name of the step
            return {"name": self.name, **_plain(self.approval)}
        return self.payload if self.wait is None else _plain(self.wait)

    @property
    def failing(self) -> OnFailure:
        return OnFailure.COMPENSATE if isinstance(self.on_failure, Compensate) else OnFailure(self.on_failure)

    @property
    def compensation(self) -> str | None:
        return self.on_failure.compensate if isinstance(self.on_failure, Compensate) else None


def find_definition_key(step: Any) -> str:
    """The definition of a step's jobs; the step may also be JSON."""
    named = step.get if isinstance(step, Mapping) else lambda name: getattr(step, name)
    waits = (key for name, key in WAIT_KEYS.items() if named(name) is not None)
    return str(named("definition") or next(waits, ""))


class Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow document. `read_workflow` reads it; `build_graph` checks whether it can run."""

    key: str
    steps: tuple[Step, ...]
    description: str = ""
    input_schema: Any = True
    # a template of the run's output; by default the outputs of all steps without successors
    output: Any = None


class WorkflowFaults(msgspec.Struct, frozen=True):
    """Collects the faults of a workflow."""

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


def read_workflow(document: Any) -> Workflow:
    """Read a workflow from JSON and check each field; WorkflowInvalid has every fault."""
    return decode_workflow(encode_workflow(document))


def decode_workflow(text: bytes) -> Workflow:
    """Read a workflow from its text, as `encode_workflow` makes it, and check each field."""
    try:
        workflow = msgspec.json.decode(text, type=Workflow)
    except msgspec.ValidationError as error:
        WorkflowFaults([_build_fault(str(error))]).refuse()
    trouble = WorkflowFaults([])
    if not KEY.fullmatch(workflow.key) or workflow.key == RESERVED:
        trouble.at("/key", f"{KEY_WORDS}, and not be {RESERVED!r}")
    _check_text(trouble, "/description", workflow.description)
    if not 1 <= len(workflow.steps) <= MAX_STEPS:
        trouble.at("/steps", f"a workflow has 1 to {MAX_STEPS} steps")
    try:
        compile_schema(workflow.input_schema)
    except FairleadError as error:
        trouble.at("/input_schema", error.message.removeprefix("arg_schema "))
    for place, step in enumerate(workflow.steps):
        _check_step(trouble, f"/steps/{place}", step)
    trouble.settle()
    return workflow


def build_document(workflow: Workflow) -> dict[str, Any]:
    """The workflow as plain JSON values."""
    document: dict[str, Any] = _plain(workflow)
    return document


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def encode_workflow(document: Any) -> bytes:
    """The text of a document; WorkflowInvalid if it is not a JSON object that can be stored."""
    try:
        _, text = encode(document, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    except FairleadError as error:
        raise WorkflowInvalid(f"The workflow cannot be stored: {error.message}", error.faults) from None
    if not isinstance(document, Mapping):
        WorkflowFaults([Fault("", "must be an object with key and steps")]).refuse()
    return text


def _build_fault(told: str) -> Fault:
    """The fault in an error message of msgspec, with a JSON pointer."""
    found = _PLACE.search(told)
    path = "" if found is None else re.sub(r"\[(\d+|\.\.\.)\]", r".\1", found["path"]).removeprefix("$")
    message = told if found is None else told[: found.start()]
    return Fault(path.replace(".", "/"), message[:1].lower() + message[1:])


def _check_step(trouble: WorkflowFaults, at: str, step: Step) -> None:
    if not STEP_NAME.fullmatch(step.name):
        trouble.at(f"{at}/name", f"{step.name[:80]!r} {STEP_NAME_WORDS}")
    _check_work(trouble, at, step)
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
    options: tuple[tuple[str, str, Any], ...] = (
        ("expires_in_seconds", "expires_in", step.expires_in_seconds),
        ("tags", "tags", step.tags or None),
    )
    for name, option, given in options:
        if given is not None and (flaw := find_option_flaw(option, given)):
            trouble.at(f"{at}/{name}", f"step {step.name!r}: {flaw}")
    _check_shapes(trouble, at, step)


def _check_work(trouble: WorkflowFaults, at: str, step: Step) -> None:
    """A step is either a job or one wait, which has none of a job's fields."""
    waits = [name for name in WAIT_KEYS if getattr(step, name) is not None]
    if len(waits) + (step.definition is not None) != 1:
        trouble.at(at, f"step {step.name!r}: must have exactly one of {', '.join(WORK)}")
        return
    if step.definition is not None:
        if not KEY.fullmatch(step.definition):
            trouble.at(f"{at}/definition", KEY_WORDS)
        return
    for name in _OF_JOBS:
        if getattr(step, name) not in (None, {}):
            trouble.at(f"{at}/{name}", f"step {step.name!r}: a step with {waits[0]} has no {name}")
    for fault in step.wait.find_faults() if step.wait is not None else ():
        trouble.at(f"{at}/{waits[0]}{fault.path}", f"step {step.name!r}: {fault.message}")


def _check_shapes(trouble: WorkflowFaults, at: str, step: Step) -> None:
    """Refuse values that no input could make valid."""
    told = f"step {step.name!r}: must be"
    if not isinstance(step.payload, dict) and not _is_placeholder(step.payload):
        trouble.at(f"{at}/payload", f"{told} an object, or a placeholder such as {{{{item}}}}")
    if isinstance(step.for_each, list):
        if len(step.for_each) > step.max_items:
            trouble.at(f"{at}/for_each", f"{told} a list of at most {step.max_items} items (max_items)")
    elif step.for_each is not None and not _is_placeholder(step.for_each):
        trouble.at(f"{at}/for_each", f"{told} a list, or a placeholder such as {{{{input.names}}}}")
    for name, value in (("host_id", step.host_id), ("resource_id", step.resource_id)):
        if value is not None and not _is_placeholder(value) and not _is_id(value):
            trouble.at(f"{at}/{name}", f"{told} a UUID, or a placeholder such as {{{{input.{name}}}}}")


def _is_placeholder(value: Any) -> bool:
    try:
        return isinstance(value, str) and isinstance(parse_template_string(value), Placeholder)
    except Flaw:
        return True  # the template's own check reports the fault


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _check_text(trouble: WorkflowFaults, at: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        trouble.at(at, f"must have at most {MAX_TEXT} characters")
    elif why := find_storage_flaw(text):
        trouble.at(at, why)
