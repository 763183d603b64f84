"""Publish workflows; start, show, cancel and retry their runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from fairlead.actions import quotas
from fairlead.actions.jobs import reclaim_key
from fairlead.actions.workflow_cache import CheckedWorkflow, WorkflowCache
from fairlead.actions.workflow_progress import advance_runs, stop_run
from fairlead.actions.workflow_release import check_plain_steps
from fairlead.db.tx import Tx
from fairlead.errors import (
    Fault,
    InvalidInput,
    PayloadInvalid,
    WorkflowInvalid,
    WorkflowRunNotRetryable,
    WorkflowRunOver,
    WorkflowRunUnknown,
    WorkflowTooDeep,
    WorkflowUnknown,
)
from fairlead.model.access import GLOBAL_TENANT, GLOBAL_TENANT_ID, Permission, Principal
from fairlead.model.definition import Definition, check_payload, compile_schema
from fairlead.model.page import Page, invalid_cursor
from fairlead.model.payload import encode
from fairlead.model.request import unknown_tenant
from fairlead.model.reserved_key import build_part_key, require_unreserved_key
from fairlead.model.secrets import destination as secret_destination
from fairlead.model.secrets.redact import Mask, find_secrets, secret_paths
from fairlead.model.secrets.sealed_payload import KEY as SEALED_KEY
from fairlead.model.secrets.sealed_payload import has_sealed
from fairlead.model.template.secrets import find_secret_fields
from fairlead.model.workflow.graph import Node, build_graph
from fairlead.model.workflow.run import PublishedWorkflow, Run, RunStatus, RunStep, StepState
from fairlead.model.workflow.secrets import mask_run, mask_spec, mask_steps, restore_spec
from fairlead.model.workflow.spec import (
    ENGINE_RUN,
    Workflow,
    build_document,
    find_definition_key,
    read_workflow,
)
from fairlead.model.workflow.step import ITEM_ROOTS, PREVIOUS, ROOTS
from fairlead.store import (
    audit,
    bulk,
    bulk_jobs,
    definitions,
    jobs,
    sealed_runs,
    sealed_workflows,
    tenants,
    workflows,
)
from fairlead.store.workflows import LockedRun

MAX_PAGE = 1000
MAX_KEY = 255
SHOWN_STEPS = 1000
# larger than a payload: it may be a list of many items
MAX_INPUT_BYTES = 4_194_304
# The deepest nesting of runs.
MAX_DEPTH = 20
_cache = WorkflowCache()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to start a run."""

    tenant: str
    input: Any = None
    version: int | None = None
    # one run per key: another start with it returns that run
    unique_key: str | None = None
    # instead of a key: the name of this run among those that `started_by_job` starts
    part: str | None = None
    correlation_id: str | None = None
    # the job that waits for the run, and the job that started it
    parent_job_id: UUID | None = None
    started_by_job: UUID | None = None


class StartedRun(msgspec.Struct, frozen=True):
    id: UUID
    # whether there was a run with this key
    deduplicated: bool = False


class RunDetails(msgspec.Struct, frozen=True):
    """A run with its steps, from a place on, and the number of steps in each state."""

    run: Run
    steps: list[RunStep]
    states: dict[StepState, int]
    next_place: int | None


# Workflows


async def publish(tx: Tx, principal: Principal, tenant: str, document: Any) -> tuple[PublishedWorkflow, bool]:
    """Publish a workflow from a document. Its newest version, and whether that is new.

    The tenant `global` shares its workflows with every tenant. Unchanged masks keep the stored secrets.
    """
    tenant_id = await _find_tenant_id(tx, principal, tenant, Permission.MANAGE_WORKFLOWS)
    workflow = read_workflow(document)
    _refuse_sealed(workflow)
    build_graph(workflow)
    found = await definitions.get_by_keys(tx, {step.definition_key for step in workflow.steps})
    _check_definitions(workflow, found, tenant_id)
    await workflows.lock_key(tx, tenant_id=tenant_id, key=workflow.key)
    known = await workflows.find_newest(tx, tenant_id=tenant_id, key=workflow.key, or_shared=False)
    spec, secrets = build_document(workflow), _secret_paths_of(found)
    if known is not None:
        opened = await sealed_workflows.open_spec(tx, known.spec, tenant_id=tenant_id)
        spec = restore_spec(spec, opened, secrets, tx.redact_patterns, sealed=known.spec)
        if opened == spec:
            return known, False
    _check_destinations(spec, found)
    made = await workflows.add_version(
        tx,
        tenant_id=tenant_id,
        is_shared=tenant_id == GLOBAL_TENANT_ID,
        key=workflow.key,
        spec=await sealed_workflows.seal_spec(tx, spec, secrets, tenant_id=tenant_id),
        secret_paths=await _secret_inputs(tx, workflow, found, tenant_id),
        created_by=principal.actor,
    )
    await audit.write(
        tx,
        actor=principal.actor,
        action="workflow_published",
        resource_type="workflow",
        resource_id=made.key,
        tenant_id=tenant_id,
        details={"version": made.version, "steps": len(workflow.steps)},
    )
    return made, True


def _refuse_sealed(workflow: Workflow) -> None:
    """Refuse a document with sealed values: only Fairlead seals."""
    for place, step in enumerate(workflow.steps):
        if has_sealed([step.payload, step.for_each]):
            why = f"step {step.name!r} has a value with {SEALED_KEY}: only Fairlead seals values"
            raise WorkflowInvalid(f"The workflow is not valid: {why}.", [Fault(f"/steps/{place}", why)])


def _check_definitions(workflow: Workflow, found: Mapping[str, Definition], tenant_id: UUID) -> None:
    missing = [
        (place, step)
        for place, step in enumerate(workflow.steps)
        if step.definition_key not in found or not found[step.definition_key].is_for(tenant_id)
    ]
    faults = [
        Fault(
            f"/steps/{place}/definition",
            f"step {step.name!r}: there is no definition {step.definition_key!r}",
        )
        for place, step in missing
    ]
    if faults and missing[0][1].wait is not None:
        raise WorkflowInvalid(
            f"The workflow is not valid: {faults[0].message}, whose jobs wait. Start a worker that serves it: one whose code "
            "defines workflows, or: fairlead worker --workflows",
            faults[:20],
        )
    if faults:
        raise WorkflowInvalid(
            f"The workflow is not valid: {faults[0].path}: {faults[0].message}. Register it with @fl.job, or: "
            "fairlead definitions put KEY",
            faults[:20],
        )


def _check_destinations(spec: Mapping[str, Any], found: Mapping[str, Definition]) -> None:
    """Refuse steps that would send a secret of the workflow to a host from the input."""
    faults = [
        Fault(f"/steps/{place}/payload/url", f"step {step['name']!r}: the url {secret_destination.WHY}")
        for place, step in enumerate(spec["steps"])
        if (key := step.get("definition"))
        and secret_destination.sends_secrets_anywhere(key, step.get("payload"), found[key].secret_paths)
    ]
    if faults:
        raise WorkflowInvalid(
            f"The workflow is not valid: {faults[0].path}: {faults[0].message}.", faults[:20]
        )


async def _secret_inputs(
    tx: Tx, workflow: Workflow, found: Mapping[str, Definition], tenant_id: UUID
) -> list[str]:
    """The paths of secrets in the input: from its schema, and from the secret fields that steps, or the runs that they
    start, fill with it.
    """
    paths = (
        set(secret_paths(workflow.input_schema)) if isinstance(workflow.input_schema, dict) else set[str]()
    )
    for step in workflow.steps:
        secrets: Sequence[str] = found[step.definition_key].secret_paths
        if step.definition_key == ENGINE_RUN:
            secrets = await sealed_runs.find_secret_inputs(tx, step.template, tenant_id=tenant_id)
        if secrets:
            roots = (*ROOTS, PREVIOUS, *ITEM_ROOTS)
            looked_at = find_secret_fields(step.template, secrets, roots, of="input")
            paths.update(looked_at)
    return sorted(paths)


async def list_workflows(
    tx: Tx, principal: Principal, *, after: str = "", after_tenant: UUID | None = None, limit: int = 50
) -> Page[PublishedWorkflow]:
    """The newest versions of the workflows that can be started, by key; literal secrets are masked.

    A principal without a tenant sees those of all tenants, by key and tenant.
    """
    principal.require(Permission.READ_WORKFLOWS, principal.tenant_id)
    _check_limit(limit)
    found = await workflows.list_newest(
        tx, tenant_id=principal.tenant_id, after=after, after_tenant=after_tenant, limit=limit
    )
    return found.with_rows(await _mask_workflows(tx, found))


def encode_place(one: PublishedWorkflow) -> str:
    """The cursor of a workflow in the list: keys have no spaces."""
    return f"{one.key} {one.tenant_id}"


def decode_place(text: str) -> tuple[str, UUID | None]:
    """The key and the tenant of a cursor."""
    key, _, tenant_id = text.partition(" ")
    try:
        return key, UUID(tenant_id) if key else None
    except ValueError:
        raise invalid_cursor() from None


async def get(
    tx: Tx, principal: Principal, tenant: str | None, key: str, *, version: int | None = None
) -> PublishedWorkflow:
    """A workflow of a tenant, or the shared one."""
    tenant_id = await _find_tenant_id(tx, principal, tenant or GLOBAL_TENANT, Permission.READ_WORKFLOWS)
    [shown] = await _mask_workflows(tx, [await _get_published(tx, tenant_id, key, version)])
    return shown


async def _get_published(tx: Tx, tenant_id: UUID, key: str, version: int | None) -> PublishedWorkflow:
    found = await workflows.find_newest(tx, tenant_id=tenant_id, key=key, version=version)
    if found is None:
        shown = repr(key[:130]) if version is None else f"{key[:130]!r} in version {version}"
        raise WorkflowUnknown(
            f"There is no workflow {shown}. Publish it with fl.workflow, or: POST /api/v1/workflows",
            [Fault("key", "unknown")],
        )
    return found


async def _mask_workflows(tx: Tx, found: Sequence[PublishedWorkflow]) -> list[PublishedWorkflow]:
    keys = {find_definition_key(step) for one in found for step in one.spec["steps"]}
    secrets = _secret_paths_of(await definitions.get_by_keys(tx, keys))
    return [replace(one, spec=mask_spec(one.spec, secrets, tx.redact_patterns)) for one in found]


def _secret_paths_of(found: Mapping[str, Definition]) -> dict[str, Sequence[str]]:
    return {key: one.secret_paths for key, one in found.items()}


# Runs


async def start(tx: Tx, principal: Principal, key: str, asked: RunRequest) -> StartedRun:
    """Start a run of a workflow: its first steps become jobs at once."""
    tenant_id = await _find_tenant_id(tx, principal, asked.tenant, Permission.START_WORKFLOWS)
    await quotas.require_room_for(tx, principal)
    if not isinstance(key, str):
        raise InvalidInput(
            "Name the workflow by its key, or give a Flow.", [Fault("workflow", "must be text")]
        )
    if asked.version is not None and type(asked.version) is not int:
        raise InvalidInput("version must be a whole number.", [Fault("version", "must be a whole number")])
    published = await _get_published(tx, tenant_id, key, asked.version)
    checked = _cache.read(published.spec)
    return await _start(tx, principal, tenant_id, asked, checked=checked, published=published)


async def start_inline(tx: Tx, principal: Principal, document: Any, asked: RunRequest) -> StartedRun:
    """Start a run of an unpublished workflow from a document."""
    tenant_id = await _find_tenant_id(tx, principal, asked.tenant, Permission.START_WORKFLOWS)
    checked = _cache.read(document)
    _refuse_sealed(checked.workflow)
    return await _start(tx, principal, tenant_id, asked, checked=checked, published=None)


async def _start(
    tx: Tx,
    principal: Principal,
    tenant_id: UUID,
    asked: RunRequest,
    *,
    checked: CheckedWorkflow,
    published: PublishedWorkflow | None,
) -> StartedRun:
    workflow = checked.workflow
    for step in workflow.steps:
        if step.wait is None:
            principal.require_definition(step.definition_key)
    given = _check_input(tx, workflow, asked)
    nodes: Sequence[Node] = checked.nodes
    hides: Sequence[str]
    found = await definitions.get_by_keys(tx, {step.definition_key for step in workflow.steps})
    if published is None:
        _check_definitions(workflow, found, tenant_id)
        hides = await _secret_inputs(tx, workflow, found, tenant_id)
    else:
        hides = published.secret_paths
    secrets = _secret_paths_of(found)
    if checked.has_sealed or any(secrets.values()):
        nodes = await sealed_workflows.seal_nodes(
            tx,
            nodes,
            secrets,
            key=workflow.key,
            tenant_id=tenant_id,
            sealed_for=None if published is None else published.tenant_id,
        )
    depth = await _measure_depth(tx, workflow, asked)
    unique_key = _unique_key(asked)
    run_id = uuid7()
    stored = await sealed_runs.seal_input(tx, given, hides, run_id=run_id, tenant_id=tenant_id)
    if stored is not given:
        _refuse_copies(workflow.key, given, hides, asked)
    is_new = await workflows.add_run(
        tx,
        run_id=run_id,
        tenant_id=tenant_id,
        key=workflow.key,
        workflow=published,
        nodes=nodes,
        # the worker looks for the secrets of the input in each payload
        checked_versions=[None] * len(nodes) if hides else check_plain_steps(tx, workflow, found, tenant_id),
        input=stored,
        output_template=workflow.output,
        secret_paths=hides,
        parent_job_id=asked.parent_job_id,
        started_by_job=asked.started_by_job or asked.parent_job_id,
        depth=depth,
        unique_key=unique_key,
        correlation_id=asked.correlation_id,
        created_by=principal.actor,
    )
    if not is_new:
        await tx.wait_for_standby()
        there = await workflows.find_by_unique_key(tx, tenant_id=tenant_id, unique_key=str(unique_key))
        return StartedRun(there or run_id, deduplicated=True)
    run = (await workflows.lock_runs(tx, [run_id]))[run_id]
    await _audit_run(tx, principal, "workflow_started", run)
    first = workflows.first_places(nodes)
    await advance_runs(tx, await workflows.release_begun(tx, run, first, [0] * len(first)))
    return StartedRun(run_id)


def _refuse_copies(key: str, given: Any, paths: Sequence[str], asked: RunRequest) -> None:
    """Raise PayloadInvalid if a text beside the input, which is stored in plain form, holds one of its secrets."""
    mask = Mask(find_secrets(given, paths))
    texts = {"key": asked.unique_key, "correlation_id": asked.correlation_id, "part": asked.part}
    faults = [
        Fault(name, "holds a secret of the input")
        for name, text in texts.items()
        if mask.mask_chosen(text) != text
    ]
    if faults:
        raise PayloadInvalid(
            f"The {faults[0].path} of a run of {key} holds a secret of its input, and would be stored in plain form. Leave it "
            "out, or use another text.",
            faults,
        )


def _unique_key(asked: RunRequest) -> str | None:
    if asked.part is not None and asked.started_by_job is not None:
        return build_part_key(asked.started_by_job, asked.part)
    if asked.unique_key is not None:
        require_unreserved_key(asked.unique_key, "key")
    return asked.unique_key


async def _measure_depth(tx: Tx, workflow: Workflow, asked: RunRequest) -> int:
    depth = 0 if asked.parent_job_id is None else await workflows.measure_depth(tx, asked.parent_job_id)
    if depth > MAX_DEPTH:
        raise WorkflowTooDeep(
            f"{workflow.key} would run nested in {depth} other runs; the limit is {MAX_DEPTH}. "
            "Check whether the workflow starts itself."
        )
    return depth


def _check_input(tx: Tx, workflow: Workflow, asked: RunRequest) -> Any:
    texts: dict[str, Any] = {"key": asked.unique_key, "correlation_id": asked.correlation_id}
    for name, value in texts.items():
        if value is not None and not (isinstance(value, str) and 1 <= len(value) <= MAX_KEY):
            raise InvalidInput(
                f"{name} must be text of 1 to {MAX_KEY} characters.",
                [Fault(name, f"text of 1 to {MAX_KEY} characters")],
            )
    given, text = encode(
        {} if asked.input is None else asked.input,
        max_bytes=MAX_INPUT_BYTES,
        max_depth=tx.settings.max_payload_depth,
    )
    try:
        check_payload(compile_schema(workflow.input_schema), workflow.key, given, size=len(text))
    except PayloadInvalid as error:
        message = error.message.replace("The payload", "The input", 1)
        raise PayloadInvalid(message, [Fault(f"/input{path}", why) for path, why in error.faults]) from None
    return given


async def _start_roots(tx: Tx, run_id: UUID) -> None:
    """Start the steps that wait for no other step any more; end a run without steps to run."""
    run = (await workflows.lock_runs(tx, [run_id]))[run_id]
    await advance_runs(tx, await workflows.start_roots(tx, run))


async def cancel(tx: Tx, principal: Principal, run_id: UUID) -> Run:
    """Cancel a run: waiting jobs at once, running jobs by a cancel request; no further step starts."""
    run = await _get_visible(tx, principal, run_id, Permission.RUN_WORKFLOWS)
    held = (await workflows.lock_runs(tx, [run.id]))[run.id]
    if held.status is not RunStatus.RUNNING and held.status is not RunStatus.CANCELED:
        raise WorkflowRunOver(f"Run {run.id} is {held.status}: only running runs can be canceled.")
    if held.status is RunStatus.RUNNING:
        if not held.is_canceling:
            await _audit_run(tx, principal, "workflow_cancel_requested", run)
        await stop_run(tx, held)  # also a second time: the first cancel skipped jobs that were locked
    return await _get_visible(tx, principal, run_id)


async def retry(tx: Tx, principal: Principal, run_id: UUID) -> Run:
    """Continue a failed or canceled run from the steps that did not succeed."""
    run = await _get_visible(tx, principal, run_id, Permission.RUN_WORKFLOWS)
    held = (await workflows.lock_runs(tx, [run.id]))[run.id]
    if held.status not in (RunStatus.FAILED, RunStatus.CANCELED):
        raise WorkflowRunNotRetryable(
            f"Run {run.id} is {held.status}: only failed and canceled runs can be retried."
        )
    await reopen(tx, run.id, within_quotas_of=run.tenant_id)
    if held.parent_job_id is not None:
        await _retry_waiting(tx, held.parent_job_id)
    await _audit_run(tx, principal, "workflow_retried", run)
    return await _get_visible(tx, principal, run_id)


async def is_retryable(tx: Tx, principal: Principal, run: Run) -> bool:
    """Whether a run, which this principal may read, can be retried."""
    principal.require(Permission.READ_RUNS, run.tenant_id)
    over = run.status in (RunStatus.FAILED, RunStatus.CANCELED)
    return over and await workflows.find_compensation(tx, run.id) is None


async def _retry_waiting(tx: Tx, job_id: UUID) -> None:
    """Requeue the job that waited for a run. A job that is a step itself is retried with its own run."""
    job = await jobs.get(tx, job_id)
    if job is not None and job.workflow_run_id is None and await bulk_jobs.lock_terminal(tx, [job_id]):
        await reclaim_key(tx, job)
        await bulk_jobs.requeue(tx, [job_id])
        await bulk.notify(tx, "ready")


async def reopen(tx: Tx, run_id: UUID, *, within_quotas_of: UUID | None = None) -> None:
    """Retry a locked run; with a tenant, refused if its jobs exceed the tenant's quotas."""
    if (undone := await workflows.find_compensation(tx, run_id)) is not None:
        raise WorkflowRunNotRetryable(
            f"Run {run_id} was undone by its step {undone!r}, and what had succeeded before would count as done. "
            "Start a new run."
        )
    troubled = await workflows.lock_failed_jobs(tx, run_id)
    held = list(troubled)
    if within_quotas_of is not None and held:
        await quotas.require_room(tx, within_quotas_of, more=len(held))
    if held:
        await workflows.forget_waits(tx, held)
    for start_at in range(0, len(held), MAX_PAGE):
        await bulk_jobs.requeue(tx, held[start_at : start_at + MAX_PAGE])
    if held:
        await bulk.notify(tx, "ready")
    await workflows.continue_run(tx, run_id, Counter(troubled.values()))
    await _start_roots(tx, run_id)


async def show_run(
    tx: Tx, principal: Principal, run_id: UUID, *, first: int = 0, limit: int = SHOWN_STEPS
) -> RunDetails:
    """A run and its steps from a place on; secrets are masked."""
    run = await _get_recorded(tx, principal, run_id, Permission.READ_RUNS)
    _check_limit(limit)
    steps = await workflows.list_steps(tx, run.id, first=first, limit=limit)
    secrets = _secret_paths_of(await definitions.get_by_keys(tx, {step.definition_key for step in steps}))
    shown = mask_steps(steps, run, secrets, tx.redact_patterns)
    more = None if steps.last is None else steps.last.place + 1
    counts = await workflows.count_steps(tx, run.id)
    return RunDetails(mask_run(run, tx.redact_patterns), shown, counts, more)


async def get_run(tx: Tx, principal: Principal, run_id: UUID) -> Run:
    """A run without its steps; secrets are masked."""
    return await _get_visible(tx, principal, run_id)


async def list_runs(
    tx: Tx,
    principal: Principal,
    *,
    key: str | None = None,
    status: RunStatus | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Page[Run]:
    """Runs, newest first."""
    principal.require(Permission.READ_RUNS, principal.tenant_id)
    _check_limit(limit)
    found = await workflows.list_runs(
        tx, tenant_id=principal.tenant_id, key=key, status=status, before=before, limit=limit
    )
    return found.map(lambda one: mask_run(one, tx.redact_patterns))


async def _get_visible(
    tx: Tx, principal: Principal, run_id: UUID, permission: Permission = Permission.READ_RUNS
) -> Run:
    return mask_run(await _get_recorded(tx, principal, run_id, permission), tx.redact_patterns)


async def _get_recorded(tx: Tx, principal: Principal, run_id: UUID, permission: Permission) -> Run:
    run = await workflows.get_run(tx, run_id, tenant_id=principal.tenant_id)
    if run is None:
        raise WorkflowRunUnknown(f"There is no run {run_id}.", [Fault("id", "unknown")])
    principal.require(permission, run.tenant_id)
    return run


async def _find_tenant_id(tx: Tx, principal: Principal, tenant: str, permission: Permission) -> UUID:
    found = await tenants.get_ids(tx, [tenant])
    if tenant not in found or principal.tenant_id not in (None, found[tenant]):
        raise unknown_tenant(tenant)
    principal.require(permission, found[tenant])
    return found[tenant]


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(
            f"limit must be between 1 and {MAX_PAGE}.", [Fault("limit", f"use 1 to {MAX_PAGE}")]
        )


async def _audit_run(tx: Tx, principal: Principal, action: str, run: Run | LockedRun) -> None:
    await audit.write(
        tx,
        actor=principal.actor,
        action=action,
        resource_type="workflow_run",
        resource_id=run.id,
        tenant_id=run.tenant_id,
        details={"workflow": run.key, "was": run.status},
    )
