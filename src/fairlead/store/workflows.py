"""Workflows, their runs and the steps of those."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.model.definition import Kind
from fairlead.model.job import JobStatus
from fairlead.model.page import Page
from fairlead.model.workflow_graph import Node
from fairlead.model.workflow_run import Published, Run, RunStatus, RunStep, StepState
from fairlead.store import bounded
from fairlead.store.jobs import Target

sql = queries_beside(__file__)
T = TypeVar("T")

# The outputs of a step's items that can be looked at together, as they are stored.
MOST_OUTPUT_BYTES = 33_554_432
# How much of payloads goes into one statement.
MOST_RELEASED_BYTES = 8_388_608


class Held(msgspec.Struct, kw_only=True):
    """A run whose row we hold, and where it stands as we change it."""

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
    # these where they are needed: something is free, or nothing is live
    input: Any
    output_template: Any
    error: Any
    secret_paths: tuple[str, ...] = ()
    # whether the job that waited for it has ended, and would want it to go on if it came back
    answered: bool = False


class Free(msgspec.Struct, array_like=True, frozen=True):
    """A step that waits for nobody."""

    run_id: UUID
    place: int
    name: str
    spec: str
    parents: int
    # how many of its parents were not skipped
    ran: int
    definition_key: str


class StepDefinition(msgspec.Struct, array_like=True, frozen=True):
    """What is needed of a definition to make jobs of it."""

    id: UUID
    key: str
    kind: Kind
    is_active: bool
    resource_pointer: str | None
    default_priority: int
    max_attempts: int
    arg_schema: str
    only_tenants: tuple[UUID, ...] | None = None


class Advanced(msgspec.Struct):
    """The runs that we hold, and those of their steps that are free now."""

    runs: list[Held] = []
    free: list[Free] | None = None
    definitions: dict[str, StepDefinition] | None = None
    # jobs that went back to the queue although their run is being canceled
    back: list[UUID] | None = None


class Over(msgspec.Struct):
    """A step that is over before it ran."""

    run_id: UUID
    place: int
    state: StepState
    error: Any = None


class Begun(msgspec.Struct):
    """What became of a free step that is not one job."""

    run_id: UUID
    place: int
    state: StepState
    items: int | None = None
    remaining: int = 0
    failed: int = 0
    error: Any = None


class StepJob(msgspec.Struct):
    """A job that a step becomes, as `release` reads it."""

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


_advanced = msgspec.json.Decoder(Advanced | None)
_free = msgspec.json.Decoder(list[Free] | None)
_definitions = msgspec.json.Decoder(dict[str, StepDefinition] | None)


# Workflows


async def hold_key(tx: Tx, *, tenant_id: UUID, key: str) -> None:
    """Let nobody else publish this workflow until the transaction ends."""
    await tx.values(sql.hold_key, {"tenant_id": tenant_id, "key": key})


async def newest(
    tx: Tx, *, tenant_id: UUID, key: str, version: int | None = None, or_shared: bool = True
) -> Published | None:
    """A tenant's workflow, or the one that is shared by all; its newest version, or the one that is named."""
    values = {"tenant_id": tenant_id, "key": key, "version": version, "or_shared": or_shared}
    return await tx.first(Published, sql.newest, values)


async def add(
    tx: Tx,
    *,
    tenant_id: UUID,
    is_shared: bool,
    key: str,
    spec: Any,
    secret_paths: Sequence[str],
    created_by: str,
) -> Published:
    """The next version of a workflow."""
    values = {
        "tenant_id": tenant_id,
        "is_shared": is_shared,
        "key": key,
        "spec": json_text(spec),
        "secret_paths": list(secret_paths),
        "created_by": created_by,
    }
    [made] = await tx.all(Published, sql.add, values)
    return made


async def listed(
    tx: Tx, *, tenant_id: UUID | None, after: str, after_tenant: UUID | None = None, limit: int
) -> Page[Published]:
    """The newest versions of what a tenant can start, by key; of all tenants' by key and tenant."""
    values = {"tenant_id": tenant_id, "after": after, "after_tenant": after_tenant}
    return await bounded.page(tx, Published, sql.listed, values, limit=limit, weighed=("spec",))


# Runs


async def start(
    tx: Tx,
    *,
    run_id: UUID,
    tenant_id: UUID,
    key: str,
    workflow: Published | None,
    nodes: Sequence[Node],
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
    """A new run with all its steps waiting; False if one with this unique key was there before."""
    values = {
        "id": run_id,
        "tenant_id": tenant_id,
        "workflow_id": workflow and workflow.id,
        "key": key,
        "version": workflow and workflow.version,
        "steps": len(nodes),
        "parent_job_id": parent_job_id,
        "started_by_job": started_by_job,
        "depth": depth,
        "unique_key": unique_key,
        "correlation_id": correlation_id,
        "input": json_text(input),
        "output_template": None if output_template is None else json_text(output_template),
        "secret_paths": list(secret_paths),
        "created_by": created_by,
        "nodes": json_text([_row(place, node) for place, node in enumerate(nodes)]),
    }
    return bool(await tx.values(sql.start, values))


def _row(place: int, node: Node) -> dict[str, Any]:
    return {
        "place": place,
        "name": node.step.name,
        "definition_key": node.step.definition,
        "spec": node.step,
        "before": node.before,
        "next": node.next,
        "on_failure": node.step.failing,
        "compensation": node.compensation,
        "is_compensation": node.is_compensation,
    }


async def with_unique_key(tx: Tx, *, tenant_id: UUID, unique_key: str) -> UUID | None:
    rows = await tx.values(sql.with_unique_key, {"tenant_id": tenant_id, "unique_key": unique_key})
    return rows[0][0] if rows else None


async def depth_below(tx: Tx, job_id: UUID) -> int:
    """How deep a run is that this job waits for, within others."""
    rows = await tx.values(sql.depth_below, {"job_id": job_id})
    return int(rows[0][0]) if rows else 0


async def hold_running(tx: Tx, job_id: UUID) -> bool:
    """Keep a job from ending until the transaction ends; False if it does not run."""
    return bool(await tx.values(sql.hold_running, {"job_id": job_id}))


async def of_job(tx: Tx, job_id: UUID) -> UUID | None:
    """The run that a job waits for."""
    rows = await tx.values(sql.of_job, {"job_id": job_id})
    return rows[0][0] if rows else None


async def hold(tx: Tx, ids: Collection[UUID]) -> dict[UUID, Held]:
    """The runs, locked in the order of their ids: only who holds a run changes its steps."""
    return {run.id: run for run in await tx.all(Held, sql.hold, {"ids": list(ids)})}


async def begin_roots(tx: Tx, run: Held) -> Advanced:
    """A run that we hold, and those of its steps that wait for nobody: they run from now on."""
    [(free, definitions)] = await tx.values(sql.begin_roots, {"run_id": run.id})
    begun = _free.decode(free or "null")
    run.live += len(begun or ())
    return Advanced([run], begun, _definitions.decode(definitions or "null"))


async def move_on(tx: Tx, jobs: Mapping[UUID, JobStatus], *, over: Sequence[Over] = ()) -> Advanced | None:
    """These jobs ended or went back, or these steps were over before they ran: count down what waits for them.

    The runs are held from now on. None if none of the jobs is a step.
    """
    values = {"ended": json_text(jobs), "over": json_text(over)}
    [(text,)] = await tx.quick(sql.move_on, values)
    advanced: Advanced | None = _advanced.decode(text or "null")
    return advanced


async def runs_of(tx: Tx, job_ids: Collection[UUID]) -> dict[UUID, UUID | None]:
    """The run that each of these jobs is a step of, if any."""
    return dict(await tx.values(sql.runs_of, {"ids": list(job_ids)}))


async def waited_for_by(tx: Tx, job_ids: Collection[UUID]) -> list[tuple[UUID, UUID]]:
    """The runs of jobs that wait for runs: each one's id, and the job."""
    return [(run_id, job_id) for run_id, job_id in await tx.values(sql.waited_for_by, {"ids": list(job_ids)})]


async def ends(tx: Tx, wanted: Collection[tuple[UUID, str]]) -> dict[UUID, dict[str, Any]]:
    """How named steps of runs ended: output, status and error of each."""
    values = {
        "runs": [run_id for run_id, _ in wanted],
        "names": [name for _, name in wanted],
        "most": MOST_OUTPUT_BYTES,
    }
    found: dict[UUID, dict[str, Any]] = {}
    for run_id, name, status, output, error, of_items in await tx.values(sql.ends, values):
        seen: dict[str, Any] = {"status": status}
        # what is not there is missing, so that a default takes its place
        if output is not None or (status == StepState.SUCCEEDED and not of_items):
            seen["output"] = output
        if error is not None:
            seen["error"] = error
        found.setdefault(run_id, {})[name] = seen
    return found


async def items_done(tx: Tx, run_id: UUID, place: int) -> set[int]:
    """The items of a step whose jobs succeeded."""
    return {item for (item,) in await tx.values(sql.items_done, {"run_id": run_id, "place": place})}


async def leaves(tx: Tx, run_id: UUID) -> list[str]:
    """The names of the steps that nobody waits for."""
    return [name for (name,) in await tx.values(sql.leaves, {"run_id": run_id})]


async def stored_output(tx: Tx, run_id: UUID) -> int:
    """How many bytes the outputs of the steps that nobody waits for take where they are stored."""
    [(size,)] = await tx.values(sql.stored_output, {"run_id": run_id})
    return int(size)


async def correct(tx: Tx, begun: Sequence[Begun]) -> None:
    """Write what became of free steps that are not one job."""
    await tx.run(sql.correct, {"begun": json_text(begun)})


async def release(tx: Tx, jobs: Sequence[StepJob]) -> None:
    """Insert the jobs of steps, ready to run."""
    for part in _parts(jobs, lambda job: len(job.payload)):
        await tx.run(sql.release, {"jobs": json_text(part)})
    if jobs:
        tx.notify("ready")


def _parts(things: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """In the same order, in parts of not too many bytes."""
    part, size = list[T](), 0
    for thing in things:
        part.append(thing)
        size += size_of(thing)
        if size > MOST_RELEASED_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


async def targets(
    tx: Tx,
    payloads: Sequence[bytes],
    *,
    tenant_id: UUID,
    definition_id: UUID,
    host_id: UUID | None,
    resource_id: UUID | None,
) -> list[Target]:
    """Which host and resource each payload is for, or why none; no host of them is removed until the transaction ends."""
    about = {
        "tenant_id": tenant_id,
        "definition_id": definition_id,
        "host_id": host_id,
        "resource_id": resource_id,
    }
    found = list[Target]()
    for part in _parts(payloads, len):
        asked = JsonText(b"[" + b",".join(part) + b"]")
        found += await tx.all(Target, sql.targets, {**about, "payloads": asked})
    return found


async def end(tx: Tx, run: Held, status: RunStatus, *, output: Any) -> None:
    """A run is over, and what waited in it with it."""
    values = {
        "id": run.id,
        "status": status,
        "failing": run.failing,
        "output": None if output is None else json_text(output),
        "error": None if run.error is None else json_text(run.error),
    }
    await tx.run(sql.end, values)


async def tell_end(tx: Tx, run_id: UUID, *, failed_step: str | None, last_error: str | None) -> None:
    """Let those know who listen that a run is over."""
    values = {"id": run_id, "failed_step": failed_step, "last_error": last_error}
    [(stored,)] = await tx.values(sql.tell_end, values)
    if stored:
        tx.notify("event")


async def wake(tx: Tx, run_id: UUID, job_id: UUID) -> bool:
    """Let a job that waits for its run be claimed; False if it does not wait, or another transaction holds its row.

    In the latter case the run, which we hold, is noted as one of `sleepers`.
    """
    return bool(await tx.run(sql.wake, {"run_id": run_id, "job_id": job_id}))


async def sleepers(tx: Tx, *, limit: int) -> list[tuple[UUID, UUID]]:
    """Runs that are over and could not wake the job that waits for them, no longer noted: held until the transaction ends."""
    return [(run_id, job_id) for run_id, job_id in await tx.values(sql.sleepers, {"limit": limit})]


async def ask_to_stop(tx: Tx, run_id: UUID) -> None:
    await tx.run(sql.ask_to_stop, {"id": run_id})


async def active_jobs(tx: Tx, run_id: UUID) -> list[UUID]:
    """The jobs of a run that are not over."""
    return [job_id for (job_id,) in await tx.values(sql.active_jobs, {"run_id": run_id})]


async def troubled_jobs(tx: Tx, run_id: UUID) -> dict[UUID, int]:
    """The jobs of the steps for which a run failed, held, and the places of those."""
    return dict(await tx.values(sql.troubled_jobs, {"run_id": run_id}))


async def reopen(tx: Tx, run_id: UUID, again: Mapping[int, int]) -> None:
    """A run that is over goes on: so many jobs of each of these steps run again, the others of its failed ones anew."""
    values = {
        "run_id": run_id,
        "live": len(again),
        "places": list(again),
        "jobs": list(again.values()),
    }
    await tx.run(sql.reopen, values)


async def gave_itself_back(tx: Tx, job_id: UUID) -> bool:
    """Whether a job that is queued again did not fail before."""
    return bool(await tx.values(sql.gave_itself_back, {"job_id": job_id}))


async def forgo(tx: Tx, run_id: UUID) -> None:
    """Nobody waits to be told how a run ended."""
    await tx.run(sql.forgo, {"id": run_id})


async def undone(tx: Tx, run_id: UUID) -> str | None:
    """A step that undid what the run had done, or began to."""
    rows = await tx.values(sql.undone, {"run_id": run_id})
    return rows[0][0] if rows else None


# Reading


async def run(tx: Tx, run_id: UUID, *, tenant_id: UUID | None) -> Run | None:
    return await tx.first(Run, f"{sql.run} {sql.run_with_id}", {"id": run_id, "tenant_id": tenant_id})


async def runs(
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
    return await bounded.page(tx, Run, query, values, limit=limit, weighed=("input", "output", "error"))


async def run_steps(tx: Tx, run_id: UUID, *, first: int = 0, limit: int = 1000) -> Page[RunStep]:
    """The steps of a run from a place on."""
    values = {"run_id": run_id, "first": first}
    return await bounded.page(
        tx, RunStep, sql.run_steps, values, limit=limit, weighed=("spec", "error", "last_error")
    )


async def step_counts(tx: Tx, run_id: UUID) -> dict[StepState, int]:
    """How many steps of a run are in each state."""
    rows = await tx.values(sql.step_counts, {"run_id": run_id})
    return {StepState(state): int(steps) for state, steps in rows}


async def forget(tx: Tx, *, days: int, limit: int) -> int:
    """Remove up to so many of the runs that ended more than so many days ago. How many."""
    return await tx.run(sql.forget, {"days": days, "limit": limit})


async def inconsistencies(tx: Tx) -> list[tuple[UUID, str]]:
    """Every way in which runs, steps and jobs disagree."""
    return [(run_id, problem) for run_id, problem in await tx.values(sql.inconsistencies)]
