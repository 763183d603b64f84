"""Workflows, their runs and steps."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from fairlead.db.arrays import IntegerArray, TextArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.model.definition import Kind
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.quota import settings_for_jobs
from fairlead.model.secrets.sealed_payload import MARK
from fairlead.model.workflow.graph import Node
from fairlead.model.workflow.run import PublishedWorkflow, Run, RunStatus, RunStep, StepState
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.model.workflow.waits import WAIT_TYPES
from fairlead.store import bounded_page
from fairlead.store.jobs import JobTarget

sql = queries_beside(__file__)
T = TypeVar("T")

# The most bytes, as text, of the outputs of a step's items that can be read together.
MOST_OUTPUT_BYTES = 8_388_608
# The most bytes of payloads in one statement.
MOST_RELEASED_BYTES = 8_388_608


class LockedRun(msgspec.Struct, kw_only=True):
    """A run whose row this transaction has locked, with its state as it changes."""

    id: UUID
    tenant_id: UUID
    tenant: str
    tenant_name: str
    tenant_timezone: str
    key: str
    version: int | None
    status: RunStatus
    live: int
    failing: bool
    is_canceling: bool
    parent_job_id: UUID | None
    correlation_id: str | None
    # only if needed: a step is free, or no step is live
    input: Any
    output_template: Any
    error: Any
    secret_paths: tuple[str, ...] = ()
    # the job that waited for the run has ended; if it comes back, the run continues
    answered: bool = False


class FreeStep(msgspec.Struct, array_like=True, frozen=True):
    """A step that waits for no other step."""

    run_id: UUID
    place: int
    name: str
    spec: str
    parents: int
    # how many of its parents were not skipped
    ran: int
    definition_key: str
    # the name of the only step before it
    previous: str | None


class StepDefinition(msgspec.Struct, array_like=True, frozen=True):
    """The fields of a definition that are needed to create jobs."""

    id: UUID
    key: str
    kind: Kind
    is_active: bool
    resource_pointer: str | None
    default_priority: int
    max_attempts: int
    arg_schema: str
    only_tenants: tuple[UUID, ...] | None = None


class ReleasedSteps(msgspec.Struct):
    """How many free steps have their jobs already, and the other free steps."""

    released: int | None = None
    free: list[FreeStep] | None = None
    definitions: dict[str, StepDefinition] | None = None


class AdvancedRuns(msgspec.Struct):
    """Locked runs, and those of their steps that are free now and have no jobs yet."""

    runs: list[LockedRun] = []
    released: int | None = None
    free: list[FreeStep] | None = None
    definitions: dict[str, StepDefinition] | None = None
    # jobs that went back to the queue although their run is being canceled
    back: list[UUID] | None = None


class EndedStep(msgspec.Struct):
    """A step that ended before it ran."""

    run_id: UUID
    place: int
    state: StepState
    error: Any = None


class StartedStep(msgspec.Struct):
    """The state of a free step that is not exactly one job."""

    run_id: UUID
    place: int
    state: StepState
    items: int | None = None
    remaining: int = 0
    failed: int = 0
    canceled: int = 0
    error: Any = None


class StepJob(msgspec.Struct):
    """A job of a step, as `insert_jobs` writes it."""

    id: UUID
    run_id: UUID
    tenant_id: UUID
    key: str
    correlation_id: str | None
    place: int
    item: int | None
    definition_id: UUID
    priority: int
    max_attempts: int
    timeout: int | None
    name: str
    payload: msgspec.Raw
    secret_paths: list[str] | None
    host_id: UUID | None = None
    resource_id: UUID | None = None
    tags: tuple[str, ...] | None = None
    expires_in: float | None = None


_advanced = msgspec.json.Decoder(AdvancedRuns | None)
_released = msgspec.json.Decoder(ReleasedSteps)


# Workflows


async def lock_key(tx: Tx, *, tenant_id: UUID, key: str) -> None:
    """Lock a workflow against other publications until the transaction ends."""
    await tx.values(sql.hold_key, {"tenant_id": tenant_id, "key": key})


async def find_newest(
    tx: Tx, *, tenant_id: UUID, key: str, version: int | None = None, or_shared: bool = True
) -> PublishedWorkflow | None:
    """A tenant's workflow, or the shared one; its newest version, or the given one."""
    values = {"tenant_id": tenant_id, "key": key, "version": version, "or_shared": or_shared}
    return await tx.first(PublishedWorkflow, sql.newest, values)


async def add_version(
    tx: Tx,
    *,
    tenant_id: UUID,
    is_shared: bool,
    key: str,
    spec: Any,
    secret_paths: Sequence[str],
    created_by: str,
) -> PublishedWorkflow:
    """Add the next version of a workflow."""
    values = {
        "tenant_id": tenant_id,
        "is_shared": is_shared,
        "key": key,
        "spec": json_text(spec),
        "secret_paths": list(secret_paths),
        "created_by": created_by,
    }
    [made] = await tx.all(PublishedWorkflow, sql.add, values)
    return made


async def list_newest(
    tx: Tx, *, tenant_id: UUID | None, after: str, after_tenant: UUID | None = None, limit: int
) -> Page[PublishedWorkflow]:
    """The newest versions of the workflows that a tenant can start, by key; (None) of all tenants, by key and tenant."""
    values = {"tenant_id": tenant_id, "after": after, "after_tenant": after_tenant}
    return await bounded_page.fetch_page(
        tx, PublishedWorkflow, sql.listed, values, limit=limit, weighed_json=("spec",)
    )


# Runs


async def add_run(
    tx: Tx,
    *,
    run_id: UUID,
    tenant_id: UUID,
    key: str,
    workflow: PublishedWorkflow | None,
    nodes: Sequence[Node],
    checked_versions: Sequence[int | None],
    input: Any,  # noqa: A002 - the word that users know
    output_template: Any,
    secret_paths: Sequence[str],
    parent_job_id: UUID | None,
    started_by_job: UUID | None,
    depth: int,
    unique_key: str | None,
    correlation_id: str | None,
    created_by: str,
) -> bool:
    """Add a run with all its steps waiting; False if there is a run with this unique key."""
    values = {
        "id": run_id,
        "tenant_id": tenant_id,
        "workflow_id": workflow and workflow.id,
        "key": key,
        "version": workflow and workflow.version,
        "steps": len(nodes),
        "live": len(first_places(nodes)),
        "parent_job_id": parent_job_id,
        "started_by_job": started_by_job,
        "depth": depth,
        "unique_key": unique_key,
        "correlation_id": correlation_id,
        "input": json_text(input),
        "output_template": None if output_template is None else json_text(output_template),
        "secret_paths": list(secret_paths),
        "created_by": created_by,
        **_step_columns(nodes),
        "checked_versions": IntegerArray(-1 if one is None else one for one in checked_versions),
    }
    return bool(await tx.run_quick(sql.start, values))


def first_places(nodes: Sequence[Node]) -> list[int]:
    """The places of the steps that wait for no other step."""
    return [place for place, node in enumerate(nodes) if not node.before and not node.is_compensation]


def _step_columns(nodes: Sequence[Node]) -> dict[str, Any]:
    """The columns of a run's steps, as arrays; the spec has no `after`, since `before` has the same."""
    linked, befores, nexts = _LinkedPlaces(), list[tuple[int, int]](), list[tuple[int, int]]()
    for node in nodes:
        befores.append(linked.add(node.before))
        nexts.append(linked.add(node.next))
    first = set(first_places(nodes))
    return {
        "names": TextArray(node.step.name.encode() for node in nodes),
        "definition_keys": TextArray(node.step.definition_key.encode() for node in nodes),
        "specs": TextArray(
            msgspec.json.encode(msgspec.structs.replace(node.step, after=())) for node in nodes
        ),
        "on_failures": TextArray(node.step.failing.encode() for node in nodes),
        "linked": IntegerArray(linked.places),
        "before_from": IntegerArray(start for start, _ in befores),
        "before_to": IntegerArray(end for _, end in befores),
        "next_from": IntegerArray(start for start, _ in nexts),
        "next_to": IntegerArray(end for _, end in nexts),
        "compensations": IntegerArray(
            -1 if node.compensation is None else node.compensation for node in nodes
        ),
        "are_compensations": IntegerArray(node.is_compensation for node in nodes),
        "are_first": IntegerArray(place in first for place in range(len(nodes))),
    }


class _LinkedPlaces:
    """The places that steps wait for, and that wait for them: equal ones are kept once."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self._known: dict[tuple[int, ...], tuple[int, int]] = {}

    def add(self, places: tuple[int, ...]) -> tuple[int, int]:
        """The first and the last index of these places, counted from 1."""
        if places not in self._known:
            self._known[places] = len(self.places) + 1, len(self.places) + len(places)
            self.places += places
        return self._known[places]


async def find_by_unique_key(tx: Tx, *, tenant_id: UUID, unique_key: str) -> UUID | None:
    rows = await tx.values(sql.with_unique_key, {"tenant_id": tenant_id, "unique_key": unique_key})
    return rows[0][0] if rows else None


async def measure_depth(tx: Tx, job_id: UUID) -> int:
    """The nesting depth of a run that this job waits for."""
    rows = await tx.values(sql.depth_below, {"job_id": job_id})
    return int(rows[0][0]) if rows else 0


async def lock_running_job(tx: Tx, job_id: UUID) -> bool:
    """Lock a running job, so that it cannot end before the transaction; False if it does not run."""
    return bool(await tx.values(sql.hold_running, {"job_id": job_id}))


async def find_awaited_run(tx: Tx, job_id: UUID) -> UUID | None:
    """The run that a job waits for."""
    rows = await tx.values(sql.of_job, {"job_id": job_id})
    return rows[0][0] if rows else None


async def lock_runs(tx: Tx, ids: Collection[UUID]) -> dict[UUID, LockedRun]:
    """Lock runs in the order of their ids: only the transaction that locks a run changes its steps."""
    return {run.id: run for run in await tx.all(LockedRun, sql.hold, {"ids": list(ids)})}


async def start_roots(tx: Tx, run: LockedRun) -> AdvancedRuns:
    """Start the steps of a locked run that wait for no other step."""
    [(number, places, ran)] = await tx.values(sql.begin_roots, {"run_id": run.id})
    if not number:
        return AdvancedRuns([run])
    run.live += number
    return await release_begun(tx, run, places, ran)


async def release_begun(tx: Tx, run: LockedRun, places: Sequence[int], ran: Sequence[int]) -> AdvancedRuns:
    """Create the jobs of running steps of a locked run that have none, except for those in the result."""
    values = {
        "runs": [run.id] * len(places),
        "places": IntegerArray(places),
        "ran": IntegerArray(ran),
        "settings": _settings(tx),
    }
    [(text,)] = await tx.run_quick(sql.release_begun, values)
    begun = _released.decode(text)
    if begun.released:
        tx.notify("ready")
    return AdvancedRuns([run], begun.released, begun.free, begun.definitions)


def _settings(tx: Tx) -> JsonText:
    return json_text(settings_for_jobs(tx.settings))


async def move_on(
    tx: Tx, jobs: Mapping[UUID, JobStatus], *, over: Sequence[EndedStep] = ()
) -> AdvancedRuns | None:
    """Decrement the counters of steps that wait for these jobs, which ended or went back, or for these ended steps.

    Locks their runs, and creates the jobs of free steps that are not in the result. None if none of the jobs is a step.
    """
    values = {"ended": json_text(jobs), "over": json_text(over), "settings": _settings(tx)}
    [(text,)] = await tx.run_quick(sql.move_on, values)
    advanced: AdvancedRuns | None = _advanced.decode(text or "null")
    if advanced is not None and advanced.released:
        tx.notify("ready")
    return advanced


async def get_runs_of_steps(tx: Tx, job_ids: Collection[UUID]) -> dict[UUID, UUID | None]:
    """The run that each of these jobs is a step of, if any."""
    return dict(await tx.values(sql.runs_of, {"ids": list(job_ids)}))


async def list_awaited_runs(tx: Tx, job_ids: Collection[UUID]) -> list[tuple[UUID, UUID]]:
    """The runs that these jobs wait for, each with its job."""
    return [(run_id, job_id) for run_id, job_id in await tx.values(sql.waited_for_by, {"ids": list(job_ids)})]


async def get_step_ends(tx: Tx, wanted: Collection[tuple[UUID, str]]) -> dict[UUID, dict[str, Any]]:
    """The output, status and error of named steps of runs."""
    values = {
        "runs": [run_id for run_id, _ in wanted],
        "names": [name for _, name in wanted],
        "most": MOST_OUTPUT_BYTES,
    }
    found: dict[UUID, dict[str, Any]] = {}
    for run_id, name, status, output, error, of_items in await tx.values(sql.ends, values):
        seen: dict[str, Any] = {"status": status}
        # a missing value has no key, so that a template's default applies
        if output is not None or (status == StepState.SUCCEEDED and not of_items):
            seen["output"] = output
        if error is not None:
            seen["error"] = error
        found.setdefault(run_id, {})[name] = seen
    return found


async def list_items_done(tx: Tx, run_id: UUID, place: int) -> set[int]:
    """The items of a step whose jobs succeeded."""
    return {item for (item,) in await tx.values(sql.items_done, {"run_id": run_id, "place": place})}


async def list_leaves(tx: Tx, run_id: UUID) -> list[str]:
    """The names of the steps that no other step waits for."""
    return [name for (name,) in await tx.values(sql.leaves, {"run_id": run_id})]


async def measure_output(tx: Tx, run_id: UUID) -> int:
    """The stored bytes of the outputs of the leaves."""
    [(size,)] = await tx.values(sql.stored_output, {"run_id": run_id})
    return int(size)


async def correct_steps(tx: Tx, begun: Sequence[StartedStep]) -> None:
    """Write the states of free steps that are not exactly one job."""
    await tx.run(sql.correct, {"begun": json_text(begun)})


async def leave_steps(tx: Tx, steps: Sequence[FreeStep]) -> None:
    """Leave running steps without jobs to `lock_left_step`."""
    await tx.run(
        sql.leave,
        {"runs": [step.run_id for step in steps], "places": IntegerArray(step.place for step in steps)},
    )
    tx.notify("step")


class LeftStep(NamedTuple):
    """A running step whose jobs are to be made."""

    run_id: UUID
    tenant_id: UUID
    place: int
    ran: int


async def lock_left_step(
    tx: Tx, after: UUID, *, has_key: bool, but: Collection[UUID] = ()
) -> LeftStep | None:
    """Lock the run of a left step, of the next tenant after that one `but` these; None if there is none that is not locked.

    Without a key to seal and open secrets, only of steps that certainly have none.
    """
    values = {"has_key": has_key, "mark": MARK.decode(), "engine_run": ENGINE_RUN, "but": list(but)}
    for place in (after, UUID(int=0)):  # after the last tenant comes the first one
        if found := await tx.values(sql.lock_left, {**values, "after": place}):
            return LeftStep(*found[0])
    return None


async def has_left_step(tx: Tx) -> bool:
    """Whether the jobs of any step are to be made."""
    return bool(await tx.values(sql.any_left))


async def take_left_steps(tx: Tx, run_id: UUID, place: int | None = None) -> list[int]:
    """In a locked run: the left steps, or one of them, which are no longer left."""
    return [found for (found,) in await tx.values(sql.take_left, {"run_id": run_id, "place": place})]


async def insert_jobs(tx: Tx, jobs: Sequence[StepJob]) -> None:
    """Insert the jobs of steps, ready to run."""
    for part in _split_by_bytes(jobs, lambda job: len(job.payload)):
        await tx.run(sql.release, {"jobs": json_text(part)})
    if jobs:
        tx.notify("ready")


def _split_by_bytes(things: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Split a sequence, in order, into parts of at most about MOST_RELEASED_BYTES."""
    part, size = list[T](), 0
    for thing in things:
        part.append(thing)
        size += size_of(thing)
        if size > MOST_RELEASED_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


async def find_targets(
    tx: Tx,
    payloads: Sequence[bytes],
    *,
    tenant_id: UUID,
    definition_id: UUID,
    host_id: UUID | None,
    resource_id: UUID | None,
) -> list[JobTarget]:
    """The host and resource of each payload, or a refusal; locks the hosts against removal until the transaction ends."""
    about = {
        "tenant_id": tenant_id,
        "definition_id": definition_id,
        "host_id": host_id,
        "resource_id": resource_id,
    }
    found = list[JobTarget]()
    for part in _split_by_bytes(payloads, len):
        asked = JsonText(b"[" + b",".join(part) + b"]")
        found += await tx.all(JobTarget, sql.targets, {**about, "payloads": asked})
    return found


async def end_run(tx: Tx, run: LockedRun, status: RunStatus, *, output: Any) -> None:
    """End a run and its waiting steps."""
    values = {
        "id": run.id,
        "status": status,
        "failing": run.failing,
        "output": None if output is None else json_text(output),
        "error": None if run.error is None else json_text(run.error),
    }
    await tx.run(sql.end, values)


async def emit_end(tx: Tx, run_id: UUID, *, failed_step: str | None, last_error: str | None) -> None:
    """Store an event for the end of a run, if a trigger listens."""
    values = {"id": run_id, "failed_step": failed_step, "last_error": last_error}
    [(stored,)] = await tx.values(sql.tell_end, values)
    if stored:
        tx.notify("event")


async def wake_job(tx: Tx, run_id: UUID, job_id: UUID) -> bool:
    """Make a job that waits for its run ready; False if it does not wait, or another transaction has locked its row.

    In the latter case the run, which is locked, is added to the runs of `take_sleeping_jobs`.
    """
    return bool(await tx.run(sql.wake, {"run_id": run_id, "job_id": job_id}))


async def take_sleeping_jobs(tx: Tx, *, limit: int) -> list[tuple[UUID, UUID]]:
    """Take ended runs that could not wake the job that waits for them, locked until the transaction ends."""
    return [(run_id, job_id) for run_id, job_id in await tx.values(sql.sleepers, {"limit": limit})]


async def take_ended_steps(tx: Tx, *, limit: int) -> dict[UUID, JobStatus]:
    """Take jobs of steps that have ended: the caller advances their runs in this transaction."""
    rows = await tx.values(sql.ended_steps, {"limit": limit})
    return {job_id: JobStatus(status) for job_id, status in rows}


async def leave_ended_step(tx: Tx, job_id: UUID) -> None:
    """Leave it to another process to advance the run of a step that has ended."""
    await tx.run(sql.leave_step, {"job_id": job_id})


async def request_cancel(tx: Tx, run_id: UUID) -> None:
    await tx.run(sql.ask_to_stop, {"id": run_id})


async def list_active_jobs(tx: Tx, run_id: UUID) -> list[UUID]:
    """The jobs of a run that have not ended."""
    return [job_id for (job_id,) in await tx.values(sql.active_jobs, {"run_id": run_id})]


async def lock_failed_jobs(tx: Tx, run_id: UUID) -> dict[UUID, int]:
    """The jobs of the steps for which a run failed, locked, with the steps' places."""
    return dict(await tx.values(sql.troubled_jobs, {"run_id": run_id}))


async def forget_waits(tx: Tx, job_ids: Sequence[UUID]) -> None:
    """Let those of the jobs that wait for workflows wait again for what has not come."""
    await tx.run(sql.forget_waits, {"jobs": list(job_ids), "keys": list(WAIT_TYPES)})


async def continue_run(tx: Tx, run_id: UUID, again: Mapping[int, int]) -> None:
    """Continue an ended run: these steps retry that many jobs each, its other failed steps start again."""
    values = {
        "run_id": run_id,
        "live": len(again),
        "places": list(again),
        "jobs": list(again.values()),
    }
    await tx.run(sql.reopen, values)


async def was_released(tx: Tx, job_id: UUID) -> bool:
    """Whether the last attempt of a requeued job released it, and did not fail."""
    return bool(await tx.values(sql.gave_itself_back, {"job_id": job_id}))


async def forget_waiting_job(tx: Tx, run_id: UUID) -> None:
    """Note that no job waits for the end of a run any more."""
    await tx.run(sql.forgo, {"id": run_id})


async def find_compensation(tx: Tx, run_id: UUID) -> str | None:
    """The name of a compensation step that ran or started, if any."""
    rows = await tx.values(sql.undone, {"run_id": run_id})
    return rows[0][0] if rows else None


# Reading


async def get_run(tx: Tx, run_id: UUID, *, tenant_id: UUID | None) -> Run | None:
    return await tx.first(Run, f"{sql.run} {sql.run_with_id}", {"id": run_id, "tenant_id": tenant_id})


async def list_runs(
    tx: Tx,
    *,
    tenant_id: UUID | None,
    key: str | None,
    status: RunStatus | None,
    before: UUID | None,
    limit: int,
) -> Page[Run]:
    """Runs, the newest first."""
    values = {"tenant_id": tenant_id, "key": key, "status": status, "before": before}
    query = f"{sql.run} {sql.runs_page}"
    return await bounded_page.fetch_page(
        tx, Run, query, values, limit=limit, weighed_json=("input", "output", "error")
    )


async def list_steps(tx: Tx, run_id: UUID, *, first: int = 0, limit: int = 1000) -> Page[RunStep]:
    """The steps of a run from a place on."""
    values = {"run_id": run_id, "first": first}
    steps = await bounded_page.fetch_page(
        tx,
        RunStep,
        sql.run_steps,
        values,
        limit=limit,
        weighed=("before", "last_error"),
        weighed_json=("spec", "error"),
    )
    places = {place for step in steps for place in step.before}
    names: dict[int, str] = {}
    if places:
        names = dict(await tx.values(sql.names, {"run_id": run_id, "places": list(places)}))
    return steps.map(lambda step: _with_after(step, names))


def _with_after(step: RunStep, names: Mapping[int, str]) -> RunStep:
    """The step with `after` in its spec, as in the document."""
    if not step.before:
        return step
    after = [names[place] for place in step.before]
    return msgspec.structs.replace(step, spec={**step.spec, "after": after})


async def count_steps(tx: Tx, run_id: UUID) -> dict[StepState, int]:
    """How many steps of a run are in each state."""
    rows = await tx.values(sql.step_counts, {"run_id": run_id})
    return {StepState(state): int(steps) for state, steps in rows}


async def remove_old(tx: Tx, *, days: int, limit: int) -> int:
    """Remove up to `limit` runs that ended more than `days` ago. Their number."""
    return await tx.run(sql.forget, {"days": days, "limit": limit})


async def list_inconsistencies(tx: Tx) -> list[tuple[UUID, str]]:
    """Every disagreement between runs, steps and jobs."""
    return [(run_id, problem) for run_id, problem in await tx.values(sql.inconsistencies)]
