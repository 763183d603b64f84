"""Release steps of workflow runs: a step that waits for no other step becomes jobs, or ends at once."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.actions.enqueue import inactive_error, raise_refusal
from fairlead.db.tx import Tx
from fairlead.errors import FairleadError, Fault, Refused, SealBroken, TemplateFailed
from fairlead.model.definition import Definition, Kind, Validator, check_payload, compile_schema
from fairlead.model.job import NewJob
from fairlead.model.payload import VALUE_WEIGHT, encode, weigh
from fairlead.model.quota import quota_error_from_database
from fairlead.model.request import unknown_definition
from fairlead.model.secrets.length import check_secrets
from fairlead.model.secrets.redact import (
    Mask,
    build_mask,
    check_references,
    find_secret_places,
    secret_paths,
    shorten,
)
from fairlead.model.secrets.reference import MARK
from fairlead.model.secrets.sealed_payload import MARK as SEALED
from fairlead.model.template.placeholder import OPEN
from fairlead.model.workflow.run import StepState
from fairlead.model.workflow.spec import ENGINE_RUN, Step, Workflow
from fairlead.model.workflow.step import PREVIOUS, Recipe, StepJobs, Task, build_recipe
from fairlead.store import quotas, sealed_runs, sealed_workflows, sealing, triggers, workflows
from fairlead.store.jobs import JobTarget
from fairlead.store.workflows import (
    AdvancedRuns,
    EndedStep,
    FreeStep,
    LockedRun,
    StartedStep,
    StepDefinition,
    StepJob,
)
from fairlead.turns.loop_pauses import LoopPauses

LONGEST_MESSAGE = 1000
# The most that all payloads of a for_each step may weigh together, as bytes of plain text.
MOST_STEP_BYTES = 33_554_432
# What a tenant's jobs of steps may weigh together that are released with the end of another job, beside those of other tenants.
# Heavier steps are left to a transaction of their own.
MOST_BESIDE_BYTES = 1_048_576
# The longest time without a statement: PostgreSQL ends a transaction that is idle for too long.
SILENCE_SECONDS = 0.1

_step = msgspec.json.Decoder(Step)
_SEALED = SEALED.decode()


@lru_cache(maxsize=4096)
def _cached_recipe(spec: str, previous: str | None) -> Recipe:
    return _build_recipe(spec, previous)


def _build_recipe(spec: str | bytes, previous: str | None) -> Recipe:
    step = _step.decode(spec)
    return build_recipe(step if previous is None else msgspec.structs.replace(step, after=(previous,)))


@lru_cache(maxsize=256)
def _cached_validator(arg_schema: str) -> Validator:
    return compile_schema(msgspec.json.decode(arg_schema))


@lru_cache(maxsize=256)
def _cached_secret_paths(arg_schema: str) -> tuple[str, ...]:
    return tuple(secret_paths(msgspec.json.decode(arg_schema)))


def build_context(run: LockedRun, steps: Mapping[str, Any]) -> dict[str, Any]:
    """The context of a run's templates."""
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


def check_plain_steps(
    tx: Tx, workflow: Workflow, found: Mapping[str, Definition], tenant_id: UUID
) -> list[int | None]:
    """For each step that is one job with the payload of its spec, the version of the definition that accepts it.

    None for all other steps: their jobs need values of the run, or are refused when the step is released.
    """
    checked: dict[tuple[str, bytes], int | None] = {}
    versions = list[int | None]()
    for step in workflow.steps:
        definition, text = found.get(step.definition_key), msgspec.json.encode(step.template)
        if definition is None or not _is_plain(step, text):
            versions.append(None)
            continue
        about = step.definition_key, text
        if about not in checked:
            checked[about] = (
                definition.version if _accepts(tx, definition, tenant_id, step.template) else None
            )
        versions.append(checked[about])
    return versions


def _is_plain(step: Step, payload: bytes) -> bool:
    # an approval's payload has the name of its step, too
    conditions = (step.when, step.for_each, step.host_id, step.resource_id, step.approval)
    if step.definition_key == ENGINE_RUN:  # the input of the run that it starts may have secrets
        return False
    return all(one is None for one in conditions) and OPEN.encode() not in payload and SEALED not in payload


def _accepts(tx: Tx, definition: Definition, tenant_id: UUID, payload: Any) -> bool:
    if definition.resource_pointer or definition.kind is Kind.HOST or not definition.is_active:
        return False
    if not definition.is_for(tenant_id):
        return False
    try:
        _encode_payload(tx, definition.key, msgspec.json.encode(definition.arg_schema).decode(), payload)
    except Refused:
        return False
    return True


def _encode_payload(tx: Tx, key: str, arg_schema: str, payload: Any) -> bytes:
    """The payload as JSON, checked against the definition's schema."""
    settings = tx.settings
    plain, text = encode(payload, max_bytes=settings.max_payload_bytes, max_depth=settings.max_payload_depth)
    check_payload(_cached_validator(arg_schema), key, plain, size=len(text))
    check_secrets(key, plain, _cached_secret_paths(arg_schema))
    if MARK in text:
        check_references(key, plain, _cached_secret_paths(arg_schema))
    return text


async def release_steps(tx: Tx, advanced: AdvancedRuns, *, alone: bool = False) -> list[EndedStep]:
    """Create the jobs of free steps. Returns the steps that end at once: skipped, without items, or refused.

    Unless the transaction is for these steps `alone`, those whose jobs are much work are left to another one.
    """
    runs = {run.id: run for run in advanced.runs}
    releasing = _StepRelease(tx, advanced.definitions or {}, alone=alone)
    recipes = list[tuple[FreeStep, Recipe]]()
    for step in advanced.free or ():
        run = runs[step.run_id]
        try:
            await sealed_runs.open_input(tx, run)
            recipes.append((step, await _read_recipe(tx, run, step)))
        except SealBroken as error:
            releasing.fail(step, error)
    wanted = {(step.run_id, name) for step, recipe in recipes for name in recipe.needs}
    seen = await workflows.get_step_ends(tx, sorted(wanted)) if wanted else {}
    for step, recipe in recipes:
        run = runs[step.run_id]
        await releasing.release(run, step, recipe, build_context(run, seen.get(run.id, {})))
        if releasing.size > MOST_STEP_BYTES:
            await releasing.write()  # keeps the payloads of many large steps out of memory
    await releasing.write()
    return releasing.over


async def _read_recipe(tx: Tx, run: LockedRun, step: FreeStep) -> Recipe:
    """The compiled step. One with sealed literals is not kept in memory after its jobs are created."""
    if _SEALED not in step.spec:
        return _cached_recipe(step.spec, step.previous)
    opened = await sealed_workflows.open_step(
        tx, msgspec.json.decode(step.spec), tenant_id=run.tenant_id, key=run.key
    )
    return _build_recipe(msgspec.json.encode(opened), step.previous)


class EncodedTask(NamedTuple):
    """A task with its encoded payload: as Python values it would take many times the memory."""

    item: int | None
    payload: bytes
    # the paths that hold secrets of the run's input
    secret_paths: list[str] | None


class _TooMuchWork(Exception):
    """A step that is released beside others is too much work."""


class PayloadWeight:
    """Limits the weight of a step's payloads while they are rendered, and pauses for the event loop in between.

    A template can expand a few megabytes of input to gigabytes.
    """

    def __init__(self, tx: Tx, most_beside: float) -> None:
        self._tx = tx
        # of the payloads so far
        self.size = 0
        self._most_beside = most_beside
        self._pauses = LoopPauses()
        self._spoken = time.monotonic()

    async def add(self, size: int) -> None:
        """Count a payload; TemplateFailed as soon as they exceed MOST_STEP_BYTES together."""
        self.size += size
        if self.size > self._most_beside:
            raise _TooMuchWork
        if self.size > MOST_STEP_BYTES:
            raise TemplateFailed(
                f"The payloads of this step have more than {MOST_STEP_BYTES >> 20} MiB together, if each of their values "
                f"counts {VALUE_WEIGHT} bytes more. "
                "Pass a reference to the data that all items share, or use fewer items.",
                [Fault("/payload", "too large for this number of items")],
            )
        await self.pause()

    async def pause(self) -> None:
        """Let other tasks run now and then, and keep the transaction from being idle."""
        if time.monotonic() - self._spoken > SILENCE_SECONDS:
            await triggers.read_clock(self._tx)
            self._spoken = time.monotonic()
        await self._pauses.pause_if_due()


class _StepRelease:
    """Steps that are released together, and the rows to write for them."""

    def __init__(self, tx: Tx, found: Mapping[str, StepDefinition], *, alone: bool) -> None:
        self.tx = tx
        self.found = found
        # how much more the payloads of each tenant may weigh
        self._beside = defaultdict[UUID, float](lambda: math.inf if alone else MOST_BESIDE_BYTES)
        self.left: list[FreeStep] = []
        # the jobs of each step, and the state of a for_each step
        self.made: list[tuple[FreeStep, list[StepJob], StartedStep | None]] = []
        self.jobs: list[StepJob] = []
        self.begun: list[StartedStep] = []
        self.over: list[EndedStep] = []
        # the bytes of these jobs' payloads
        self.size = 0
        self._masks: dict[UUID, Mask | None] = {}

    async def release(self, run: LockedRun, step: FreeStep, recipe: Recipe, context: dict[str, Any]) -> None:
        """Create the jobs of a step, or end it, or leave it."""
        if self._beside[run.tenant_id] <= 0:
            self.left.append(step)
            return
        try:
            released = None if step.parents and not step.ran else self._build_tasks(recipe, context)
            if released is None:  # its condition is false, or all steps before it were skipped
                self._is_over(step, StepState.SKIPPED)
            elif not released.count:
                self._is_over(step, StepState.SUCCEEDED, items=0)
            elif self._is_hosted(run, recipe, released):
                await self._add_hosted(run, step, recipe, released)
            else:
                await self._add(run, step, recipe, released)
        except _TooMuchWork:
            self.left.append(step)
            self._beside[run.tenant_id] = 0
        except Refused as refusal:
            self._is_over(step, StepState.FAILED, error=_describe_error(refusal, self._mask_of(run)))

    def fail(self, step: FreeStep, why: FairleadError) -> None:
        """End a step that cannot be read."""
        self._is_over(step, StepState.FAILED, error=_describe_error(why))

    async def write(self) -> None:
        """Write the jobs and states so far, as far as the quotas allow, and which steps are left."""
        if self.left:
            await workflows.leave_steps(self.tx, self.left)
            self.left = []
        await self._hold_to_quotas()
        if self.begun:
            await workflows.correct_steps(self.tx, self.begun)
        if self.jobs:
            await workflows.insert_jobs(self.tx, await self._seal(self.jobs))
        self.made, self.begun, self.jobs, self.size = [], [], [], 0

    async def _seal(self, jobs: Sequence[StepJob]) -> Sequence[StepJob]:
        """The jobs as they are stored: with sealed secrets, if the database encrypts."""
        marked = {
            one.id: (one.key, paths)
            for one in self.found.values()
            if (paths := _cached_secret_paths(one.arg_schema))
        }
        if not any(job.secret_paths or job.definition_id in marked for job in jobs):
            return jobs
        if not await sealing.is_on(self.tx):
            return jobs
        keys = {one.id: one.key for one in self.found.values()}
        for job in jobs:
            _, paths = marked.get(job.definition_id, ("", ()))
            if paths := (*paths, *(job.secret_paths or ())):
                sealed = sealing.seal_for_job(
                    await sealing.find_current_key(self.tx, job.tenant_id),
                    msgspec.json.decode(job.payload),
                    paths,
                    definition=keys[job.definition_id],
                    job_id=job.id,
                )
                job.payload = msgspec.Raw(msgspec.json.encode(sealed))
        return jobs

    def _is_over(
        self, step: FreeStep, state: StepState, *, error: Any = None, items: int | None = None
    ) -> None:
        self.begun.append(StartedStep(step.run_id, step.place, state, items=items, error=error))
        self.over.append(EndedStep(step.run_id, step.place, state, error))

    def _build_tasks(self, recipe: Recipe, context: dict[str, Any]) -> StepJobs | None:
        """The tasks of the step; None if its condition is false."""
        if len(recipe.step.after) == 1:
            context[PREVIOUS] = context["steps"].get(recipe.step.after[0], {})
        if not recipe.condition_holds(context):
            return None
        return recipe.render_jobs(context, max_bytes=self.tx.settings.max_payload_bytes)

    def _active(self, run: LockedRun, recipe: Recipe) -> StepDefinition:
        definition = self.found.get(recipe.step.definition_key)
        if definition is None or run.tenant_id not in (definition.only_tenants or [run.tenant_id]):
            raise unknown_definition(recipe.step.definition_key)
        if not definition.is_active:
            raise inactive_error(definition.key)
        return definition

    def _is_hosted(self, run: LockedRun, recipe: Recipe, released: StepJobs) -> bool:
        definition = self._active(run, recipe)
        bound = definition.resource_pointer or definition.kind is Kind.HOST
        return bool(released.host_id or released.resource_id or bound)

    async def _add(self, run: LockedRun, step: FreeStep, recipe: Recipe, released: StepJobs) -> None:
        """Add jobs for any worker: all of them, or the step fails."""
        definition, made = self._active(run, recipe), list[StepJob]()
        weight = PayloadWeight(self.tx, self._beside[run.tenant_id])
        for task in released.tasks:
            await weight.pause()  # it has just been rendered
            filled = await self._fill(run, definition, task)
            await weight.add(weigh(filled.payload))
            made.append(self._job(run, step, recipe, filled))
        self._beside[run.tenant_id] -= weight.size
        begun = None if recipe.for_each is None else _many_jobs(step, jobs=len(made))
        self.made.append((step, made, begun))

    def _job(
        self,
        run: LockedRun,
        step: FreeStep,
        recipe: Recipe,
        filled: EncodedTask,
        at: JobTarget | None = None,
    ) -> StepJob:
        spec, definition = recipe.step, self._active(run, recipe)
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
            priority=definition.default_priority if spec.priority is None else spec.priority,
            max_attempts=spec.max_attempts or definition.max_attempts,
            timeout=spec.timeout_seconds,
            name=step.name,
            payload=msgspec.Raw(filled.payload),
            secret_paths=filled.secret_paths,
            host_id=None if at is None else at.host_id,
            resource_id=None if at is None else at.resource_id,
            tags=spec.tags or None,
            expires_in=spec.expires_in_seconds,
        )

    async def _fill(self, run: LockedRun, definition: StepDefinition, task: Task) -> EncodedTask:
        text = _encode_payload(self.tx, definition.key, definition.arg_schema, task.payload)
        hidden = self._hides(run, task)
        if definition.key == ENGINE_RUN:
            inputs = await sealed_runs.find_secret_inputs(self.tx, task.payload, tenant_id=run.tenant_id)
            hidden = [*(hidden or ()), *inputs] or None
        return EncodedTask(task.item, text, hidden)

    async def _add_hosted(self, run: LockedRun, step: FreeStep, recipe: Recipe, released: StepJobs) -> None:
        """Add jobs for hosts, which one query finds for all of them; an item with an unknown host is refused alone."""
        # if the step is retried because some items were refused, the other items are done
        done = (
            await workflows.list_items_done(self.tx, run.id, step.place)
            if recipe.for_each is not None
            else set()
        )
        tasks = (task for task in released.tasks if task.item not in done)
        fit, refused = await self._fitting(run, self._active(run, recipe), tasks)
        places = await workflows.find_targets(
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
                refused.append(_build_refusal(run, recipe, released, at.refusal))
        if not made:
            raise refused[0]
        begun = None
        if recipe.for_each is not None:
            begun = _many_jobs(step, jobs=len(made), refused=refused, done=len(done), mask=self._mask_of(run))
        self.made.append((step, made, begun))

    async def _fitting(
        self, run: LockedRun, definition: StepDefinition, tasks: Iterable[Task]
    ) -> tuple[list[EncodedTask], list[Refused]]:
        """The tasks whose payloads are valid, and the refusals of the others."""
        fit, refused = list[EncodedTask](), list[Refused]()
        weight = PayloadWeight(self.tx, self._beside[run.tenant_id])
        for task in tasks:
            try:
                filled = await self._fill(run, definition, task)
            except Refused as refusal:
                refused.append(refusal)
                await weight.add(0)
                continue
            fit.append(filled)
            await weight.add(weigh(filled.payload))
        self._beside[run.tenant_id] -= weight.size
        return fit, refused

    def _hides(self, run: LockedRun, task: Task) -> list[str] | None:
        """The paths of a payload that hold secrets of the run's input, in addition to the definition's."""
        mask = self._mask_of(run)
        return None if mask is None else find_secret_places(task.payload, mask) or None

    def _mask_of(self, run: LockedRun) -> Mask | None:
        """The mask of the secrets of the run's input."""
        if not run.secret_paths:
            return None
        if run.id not in self._masks:
            self._masks[run.id] = build_mask(run.input, run.secret_paths)
        return self._masks[run.id]

    async def _hold_to_quotas(self) -> None:
        """Take the steps whose jobs fit into the quotas; any other step fails without creating a job."""
        if self.made and not await self._refusals([jobs for _, jobs, _ in self.made]):
            self._take(self.made)
            return
        taken = list[list[StepJob]]()
        for step, jobs, begun in self.made:
            if refusals := await self._refusals([*taken, jobs]):
                refusal = quota_error_from_database(refusals[0], more=len(jobs))
                self._is_over(step, StepState.FAILED, error=_describe_error(refusal))
            else:
                taken.append(jobs)
                self._take([(step, jobs, begun)])

    async def _refusals(self, made: Sequence[Sequence[StepJob]]) -> list[dict[str, Any]]:
        jobs = [job for some in made for job in some]
        found = await quotas.find_refusals(
            self.tx,
            tenants=Counter(job.tenant_id for job in jobs),
            runs=Counter(job.run_id for job in jobs),
        )
        return list(found.values())

    def _take(self, made: Sequence[tuple[FreeStep, list[StepJob], StartedStep | None]]) -> None:
        for _, jobs, begun in made:
            self.jobs += jobs
            if begun is not None:
                self.begun.append(begun)


def _many_jobs(
    step: FreeStep, *, jobs: int, refused: Sequence[Refused] = (), done: int = 0, mask: Mask | None = None
) -> StartedStep:
    return StartedStep(
        step.run_id,
        step.place,
        StepState.RUNNING,
        items=jobs + len(refused) + done,
        remaining=jobs,
        failed=len(refused),
        error=_describe_error(refused[0], mask) if refused else None,
    )


def _build_refusal(run: LockedRun, recipe: Recipe, released: StepJobs, outcome: str) -> Refused:
    """The error that an enqueue would raise."""
    new = NewJob(
        definition=recipe.step.definition_key,
        tenant=str(run.tenant_id),
        host_id=released.host_id,
        resource_id=released.resource_id,
    )
    try:
        raise_refusal(new, outcome)
    except Refused as refusal:
        return refusal


def _describe_error(refusal: FairleadError, mask: Mask | None = None) -> dict[str, Any]:
    others = "; ".join(f"{fault.path or '/'}: {fault.message}" for fault in refusal.faults[1:])
    message = f"{refusal.message} Also: {others}" if others else refusal.message
    return {"code": refusal.code, "message": shorten(message, LONGEST_MESSAGE, mask)}
