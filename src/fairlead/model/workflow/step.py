"""A step of a workflow whose jobs are created: the values it needs, and its jobs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from fairlead.errors import Fault, FilterInvalid, TemplateFailed, TemplateInvalid
from fairlead.model.template.filter import Filter, parse_filter
from fairlead.model.template.path import Path
from fairlead.model.template.rendering import EncodedValues
from fairlead.model.template.spec import Template, compile_template
from fairlead.model.workflow.spec import Step
from fairlead.model.workflow.waits import WAIT_TYPES

T = TypeVar("T")

ROOTS = ("input", "steps", "tenant", "run")
ITEM_ROOTS = ("item", "index")
PREVIOUS = "previous"
STEPS = "steps"
MAX_LIST_BYTES = 16_777_216


class Task(msgspec.Struct, frozen=True):
    """A job of a step: its payload and, for a step with for_each, the index of its item."""

    payload: Any
    item: int | None = None


class StepJobs(msgspec.Struct, frozen=True):
    """The jobs of a step, and where they run. Payloads are rendered lazily, one at a time."""

    tasks: Iterator[Task]
    count: int
    host_id: UUID | None = None
    resource_id: UUID | None = None


class Recipe(msgspec.Struct, frozen=True):
    """A compiled step: its templates and its condition."""

    step: Step
    payload: Template
    when: Filter | None
    for_each: Template | None
    where: Template

    @property
    def paths(self) -> Iterator[Path]:
        """All paths that the step uses."""
        yield from self.payload.paths
        yield from self.where.paths
        if self.for_each is not None:
            yield from self.for_each.paths
        if self.when is not None:
            yield from iterate_filter_paths(self.when)

    @property
    def needs(self) -> set[str]:
        """The steps whose results it uses."""
        named = {path.segments[1] for path in self.paths if path.segments[0] == STEPS}
        if len(self.step.after) == 1 and any(path.segments[0] == PREVIOUS for path in self.paths):
            named.add(self.step.after[0])
        return named

    def condition_holds(self, context: Mapping[str, Any]) -> bool:
        """Whether its condition holds."""
        return self.when is None or self.when.matches(dict(context))

    def render_jobs(self, context: Mapping[str, Any], *, max_bytes: int) -> StepJobs:
        """Render the step's jobs; TemplateFailed if a template cannot be filled."""
        where = self.where.render(context, max_bytes=max_bytes)
        places = {name: _parse_uuid(name, value) for name, value in where.items()}
        if self.for_each is None:
            only = Task(self.payload.render(context, max_bytes=max_bytes))
            return StepJobs(iter([only]), 1, **places)
        items = self._require_items(self.for_each.render(context, max_bytes=MAX_LIST_BYTES))
        return StepJobs(self._render_items(context, items, max_bytes), len(items), **places)

    def _render_items(self, context: Mapping[str, Any], items: list[Any], max_bytes: int) -> Iterator[Task]:
        encoded = EncodedValues()
        for index, item in enumerate(items):
            seen = {**context, "item": item, "index": index}
            yield Task(self.payload.render(seen, max_bytes=max_bytes, encoded=encoded), index)

    def _require_items(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise TemplateFailed("for_each must be a list.", [Fault("/for_each", "must be a list")])
        if len(items) > self.step.max_items:
            raise TemplateFailed(
                f"for_each has {len(items)} items, and max_items is {self.step.max_items}.",
                [Fault("/for_each", f"more than {self.step.max_items} items")],
            )
        return items


def build_recipe(step: Step) -> Recipe:
    """Compile a step; TemplateInvalid or FilterInvalid if a template or the condition is wrong."""
    roots = (*ROOTS, *((PREVIOUS,) if len(step.after) == 1 else ()))
    where = {
        name: value
        for name, value in (("host_id", step.host_id), ("resource_id", step.resource_id))
        if value is not None
    }
    of_items = (*roots, *(ITEM_ROOTS if step.for_each is not None else ()))
    return Recipe(
        step,
        payload=_EMPTY
        if (template := step.template) == {}
        else _read_part(_template_name(step), lambda: compile_template(template, of_items)),
        when=None if step.when is None else _read_part("when", lambda: parse_filter(step.when)),
        for_each=None
        if step.for_each is None
        else _read_part("for_each", lambda: compile_template(step.for_each, roots)),
        where=compile_template(where, roots) if where else _EMPTY,
    )


def _template_name(step: Step) -> str:
    return WAIT_TYPES.get(step.definition_key, "payload") if step.wait is not None else "payload"


# compiled once: many steps have no payload, and few name a host or a resource
_EMPTY = compile_template({}, ROOTS)


def _read_part(name: str, make: Callable[[], T]) -> T:
    """Compile a field of a step; the paths of its faults begin with the field's name."""
    try:
        return make()
    except (TemplateInvalid, FilterInvalid) as error:
        faults = [Fault(f"/{name}{path}", message) for path, message in error.faults]
        raise type(error)(error.message, faults) from None


def iterate_filter_paths(wanted: Filter) -> Iterator[Path]:
    """All paths that a filter uses."""
    for condition in wanted.conditions:
        yield condition.path
    for one in wanted.alternatives:
        yield from iterate_filter_paths(one)


def _parse_uuid(name: str, value: Any) -> UUID:
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        raise TemplateFailed(f"{name} must be a UUID.", [Fault(f"/{name}", "must be a UUID")]) from None
