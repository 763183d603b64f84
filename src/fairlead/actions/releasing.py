"""Releasing: a step that waits for nobody becomes its jobs, or is over at once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.actions.enqueue import inactive, refuse
from fairlead.db.tx import Tx
from fairlead.errors import Fault, Refused, TemplateFailed
from fairlead.model.definition import Kind, Validator, check_payload, validator
from fairlead.model.job import NewJob
from fairlead.model.payload import encode
from fairlead.model.quota import exceeded_as_told
from fairlead.model.redact import Mask, mask_for, places, secret_paths, shorten
from fairlead.model.request import unknown_definition
from fairlead.model.secret_length import check_secrets
from fairlead.model.workflow import Step
from fairlead.model.workflow_run import StepState
from fairlead.model.workflow_step import PREVIOUS, Recipe, Released, Task, recipe_of
from fairlead.pauses import Pauses
from fairlead.store import quotas, triggers, workflows
from fairlead.store.jobs import Target
from fairlead.store.workflows import Advanced, Begun, Free, Held, Over, StepDefinition, StepJob

LONGEST_MESSAGE = 1000
# All payloads of a step for each item.
MOST_STEP_BYTES = 33_554_432
# How long payloads are made without a pause.
SILENCE_SECONDS = 0.1

_step = msgspec.json.Decoder(Step)


@lru_cache(maxsize=4096)
def _recipe(spec: str) -> Recipe:
    return recipe_of(_step.decode(spec))


@lru_cache(maxsize=256)
def _validator(arg_schema: str) -> Validator:
    return validator(msgspec.json.decode(arg_schema))


@lru_cache(maxsize=256)
def _secret_paths(arg_schema: str) -> tuple[str, ...]:
    return tuple(secret_paths(msgspec.json.decode(arg_schema)))


def context_of(run: Held, steps: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates of a run may look at."""
    return {
        "input": run.input,
        "steps": dict(steps),
        "run": {"id": str(run.id), "workflow": run.key, "version": run.version},
        "tenant": {
            "id": str(run.tenant_id),
            "slug": run.tenant,
            "name": run.tenant_name,
            "timezone": run.tenant_timezone,
        },
    }


async def release(tx: Tx, advanced: Advanced) -> list[Over]:
    """Make the jobs of free steps. Those that are over at once come back: not wanted, without items, or refused."""
    free = advanced.free or ()
    recipes = [_recipe(step.spec) for step in free]
    wanted = {
        (step.run_id, name) for step, recipe in zip(free, recipes, strict=True) for name in recipe.needs
    }
    seen = await workflows.ends(tx, sorted(wanted)) if wanted else {}
    runs = {run.id: run for run in advanced.runs}
    releasing = _Releasing(tx, advanced.definitions or {})
    for step, recipe in zip(free, recipes, strict=True):
        run = runs[step.run_id]
        await releasing.release(run, step, recipe, context_of(run, seen.get(run.id, {})))
        if releasing.size > MOST_STEP_BYTES:
            await releasing.write()  # many steps of this size are not held in memory together
    await releasing.write()
    return releasing.over


class Filled(NamedTuple):
    """A task whose payload is text: as values it takes many times the memory."""

    item: int | None
    payload: bytes
    # where secrets of the run's input got to
    secret_paths: list[str] | None


class Weight:
    """Weighs the payloads of a step while they are made, and lets the loop and the database go on in between.

    A template can make gigabytes of a few megabytes of input.
    """

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._size = 0
        self._pauses = Pauses(SILENCE_SECONDS)

    async def add(self, size: int) -> None:
        """Count a payload; TemplateFailed as soon as they are too much together."""
        self._size += size
        if self._size > MOST_STEP_BYTES:
            raise TemplateFailed(
                f"The payloads of this step have more than {MOST_STEP_BYTES >> 20} MiB together. "
                "Pass a reference to what all items share, or use fewer items.",
                [Fault("/payload", "too much for so many items")],
            )
        if self._pauses.is_time:
            await triggers.moment(self._tx)
            await self._pauses.pause()


class _Releasing:
    """Steps that are released together, and what is to be written of them."""

    def __init__(self, tx: Tx, found: Mapping[str, StepDefinition]) -> None:
        self.tx = tx
        self.found = found
        # the jobs of each step, and what is written of it if it is many
        self.made: list[tuple[Free, list[StepJob], Begun | None]] = []
        self.jobs: list[StepJob] = []
        self.begun: list[Begun] = []
        self.over: list[Over] = []
        # of the payloads of these jobs, in bytes
        self.size = 0
        self._masks: dict[UUID, Mask | None] = {}

    async def release(self, run: Held, step: Free, recipe: Recipe, context: dict[str, Any]) -> None:
        """Make the jobs of a step, or let it be over."""
        try:
            released = None if step.parents and not step.ran else self._released(recipe, context)
            if released is None:  # not wanted, or everything before it was not
                self._is_over(step, StepState.SKIPPED)
            elif not released.count:
                self._is_over(step, StepState.SUCCEEDED, items=0)
            elif self._is_hosted(run, recipe, released):
                await self._add_hosted(run, step, recipe, released)
            else:
                await self._add(run, step, recipe, released)
        except Refused as refusal:
            self._is_over(step, StepState.FAILED, error=_error(refusal, self._mask_of(run)))

    async def write(self) -> None:
        """Write down what was made so far, as far as it fits into the quotas."""
        await self._hold_to_quotas()
        if self.begun:
            await workflows.correct(self.tx, self.begun)
        if self.jobs:
            await workflows.release(self.tx, self.jobs)
        self.made, self.begun, self.jobs, self.size = [], [], [], 0

    def _is_over(self, step: Free, state: StepState, *, error: Any = None, items: int | None = None) -> None:
        self.begun.append(Begun(step.run_id, step.place, state, items=items, error=error))
        self.over.append(Over(step.run_id, step.place, state, error))

    def _released(self, recipe: Recipe, context: dict[str, Any]) -> Released | None:
        """What the step becomes; None if it is not wanted."""
        if len(recipe.step.after) == 1:
            context[PREVIOUS] = context["steps"].get(recipe.step.after[0], {})
        if not recipe.is_wanted(context):
            return None
        return recipe.released(context, max_bytes=self.tx.settings.max_payload_bytes)

    def _active(self, run: Held, recipe: Recipe) -> StepDefinition:
        definition = self.found.get(recipe.step.definition)
        if definition is None or run.tenant_id not in (definition.only_tenants or [run.tenant_id]):
            raise unknown_definition(recipe.step.definition)
        if not definition.is_active:
            raise inactive(definition.key)
        return definition

    def _is_hosted(self, run: Held, recipe: Recipe, released: Released) -> bool:
        definition = self._active(run, recipe)
        bound = definition.resource_pointer or definition.kind is Kind.HOST
        return bool(released.host_id or released.resource_id or bound)

    async def _add(self, run: Held, step: Free, recipe: Recipe, released: Released) -> None:
        """Jobs for any worker: all of them, or the step fails."""
        definition, made, weight = self._active(run, recipe), list[StepJob](), Weight(self.tx)
        for task in released.tasks:
            filled = self._filled(run, definition, task)
            await weight.add(len(filled.payload))
            made.append(self._job(run, step, recipe, filled))
        begun = None if recipe.for_each is None else _is_many(step, jobs=len(made))
        self.made.append((step, made, begun))

    def _job(
        self,
        run: Held,
        step: Free,
        recipe: Recipe,
        filled: Filled,
        at: Target | None = None,
    ) -> StepJob:
        said, definition = recipe.step, self._active(run, recipe)
        self.size += len(filled.payload)
        return StepJob(
            id=uuid7(),
            run_id=step.run_id,
            tenant_id=run.tenant_id,
            key=run.key,
            correlation_id=run.correlation_id,
            place=step.place,
            item=filled.item,
            definition_id=definition.id,
            priority=definition.default_priority if said.priority is None else said.priority,
            max_attempts=said.max_attempts or definition.max_attempts,
            timeout=said.timeout_seconds,
            name=step.name,
            payload=msgspec.Raw(filled.payload),
            secret_paths=filled.secret_paths,
            host_id=None if at is None else at.host_id,
            resource_id=None if at is None else at.resource_id,
        )

    def _filled(self, run: Held, definition: StepDefinition, task: Task) -> Filled:
        settings = self.tx.settings
        payload, text = encode(
            task.payload, max_bytes=settings.max_payload_bytes, max_depth=settings.max_payload_depth
        )
        check_payload(_validator(definition.arg_schema), definition.key, payload, size=len(text))
        check_secrets(definition.key, payload, _secret_paths(definition.arg_schema))
        return Filled(task.item, text, self._hides(run, task))

    async def _add_hosted(self, run: Held, step: Free, recipe: Recipe, released: Released) -> None:
        """Jobs for hosts, which the database finds for all of them at once; an item whose host is not there is refused alone."""
        # of a step that is retried since some were refused, the others are done
        done = (
            await workflows.items_done(self.tx, run.id, step.place) if recipe.for_each is not None else set()
        )
        tasks = (task for task in released.tasks if task.item not in done)
        fit, refused = await self._fitting(run, self._active(run, recipe), tasks)
        places = await workflows.targets(
            self.tx,
            [filled.payload for filled in fit],
            tenant_id=run.tenant_id,
            definition_id=self._active(run, recipe).id,
            host_id=released.host_id,
            resource_id=released.resource_id,
        )
        made = list[StepJob]()
        for one, at in zip(fit, places, strict=True):
            if at.refusal is None:
                made.append(self._job(run, step, recipe, one, at))
            else:
                refused.append(_refusal(run, recipe, released, at.refusal))
        if not made:
            raise refused[0]
        begun = None
        if recipe.for_each is not None:
            begun = _is_many(step, jobs=len(made), refused=refused, done=len(done), mask=self._mask_of(run))
        self.made.append((step, made, begun))

    async def _fitting(
        self, run: Held, definition: StepDefinition, tasks: Iterable[Task]
    ) -> tuple[list[Filled], list[Refused]]:
        """The tasks whose payloads the definition takes, and why it does not take the others."""
        fit, refused, weight = list[Filled](), list[Refused](), Weight(self.tx)
        for task in tasks:
            try:
                filled = self._filled(run, definition, task)
            except Refused as refusal:
                refused.append(refusal)
                await weight.add(0)
                continue
            fit.append(filled)
            await weight.add(len(filled.payload))
        return fit, refused

    def _hides(self, run: Held, task: Task) -> list[str] | None:
        """Where secrets of the run's input got to in a payload, whatever the definition says."""
        mask = self._mask_of(run)
        return None if mask is None else places(task.payload, mask) or None

    def _mask_of(self, run: Held) -> Mask | None:
        """What masks the secrets of the run's input."""
        if not run.secret_paths:
            return None
        if run.id not in self._masks:
            self._masks[run.id] = mask_for(run.input, run.secret_paths)
        return self._masks[run.id]

    async def _hold_to_quotas(self) -> None:
        """Take the jobs of the steps that fit into the quotas; a step whose jobs do not fit fails, with none of them made."""
        if self.made and not await self._refusals([jobs for _, jobs, _ in self.made]):
            self._take(self.made)
            return
        taken = list[list[StepJob]]()
        for step, jobs, begun in self.made:
            if refusals := await self._refusals([*taken, jobs]):
                refusal = exceeded_as_told(refusals[0], more=len(jobs))
                self._is_over(step, StepState.FAILED, error=_error(refusal))
            else:
                taken.append(jobs)
                self._take([(step, jobs, begun)])

    async def _refusals(self, made: Sequence[Sequence[StepJob]]) -> list[dict[str, Any]]:
        jobs = [job for some in made for job in some]
        found = await quotas.refusals(
            self.tx,
            tenants=Counter(job.tenant_id for job in jobs),
            runs=Counter(job.run_id for job in jobs),
        )
        return list(found.values())

    def _take(self, made: Sequence[tuple[Free, list[StepJob], Begun | None]]) -> None:
        for _, jobs, begun in made:
            self.jobs += jobs
            if begun is not None:
                self.begun.append(begun)


def _is_many(
    step: Free, *, jobs: int, refused: Sequence[Refused] = (), done: int = 0, mask: Mask | None = None
) -> Begun:
    return Begun(
        step.run_id,
        step.place,
        StepState.RUNNING,
        items=jobs + len(refused) + done,
        remaining=jobs,
        failed=len(refused),
        error=_error(refused[0], mask) if refused else None,
    )


def _refusal(run: Held, recipe: Recipe, released: Released, outcome: str) -> Refused:
    """What an enqueue would be refused with."""
    new = NewJob(
        definition=recipe.step.definition,
        tenant=str(run.tenant_id),
        host_id=released.host_id,
        resource_id=released.resource_id,
    )
    try:
        refuse(new, outcome)
    except Refused as refusal:
        return refusal


def _error(refusal: Refused, mask: Mask | None = None) -> dict[str, Any]:
    others = "; ".join(f"{fault.path or '/'}: {fault.message}" for fault in refusal.faults[1:])
    message = f"{refusal.message} Also: {others}" if others else refusal.message
    return {"code": refusal.code, "message": shorten(message, LONGEST_MESSAGE, mask)}
