"""The methods of Fairlead for workflows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypedDict, Unpack
from uuid import UUID

from fairlead.actions import workflow_jobs, workflows
from fairlead.actions.workflows import RunDetails, RunRequest, StartedRun
from fairlead.db.tx import Tx
from fairlead.errors import (
    Fault,
    InvalidInput,
    Refused,
    ResultTimeout,
    SignatureInvalid,
    WorkflowInvalid,
    WorkflowRunFailed,
)
from fairlead.handlers.context import Context, Fatal, Snooze, current_job
from fairlead.handlers.engine_waits import list_waits
from fairlead.library.client import Client, poll_until
from fairlead.model.access import GLOBAL_TENANT
from fairlead.model.job import seconds_of
from fairlead.model.request import parse_id
from fairlead.model.workflow.graph import build_graph
from fairlead.model.workflow.run import Run, RunStatus
from fairlead.model.workflow.spec import ENGINE_RUN, read_workflow
from fairlead.settings import Settings

# The end of a run wakes the job that waits for it; as a fallback, the job checks this often.
LOOK_SECONDS = 86_400.0
TASKS = "tasks"
JOIN = "join"

ENGINE_OPTIONS: dict[str, Any] = {
    "key": ENGINE_RUN,
    "kind": "workflow",
    "description": "Runs a workflow and waits for its end, without a worker.",
    "max_attempts": 3,
}


class FlowStep:
    """A step of a Flow: pass it as `after` of other steps."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class WaitOptions(TypedDict, total=False):
    """The options that steps with a wait share with other steps."""

    after: "Sequence[FlowStep | str] | FlowStep | str"
    when: Mapping[str, Any] | None
    for_each: Any
    max_items: int | None
    on_failure: "str | FlowStep | Mapping[str, str] | None"
    tags: Sequence[str] | None
    priority: int | None


class Flow:
    """A workflow under construction, step by step. `fl.workflow` creates it."""

    def __init__(
        self, key: str, *, tenant: str = GLOBAL_TENANT, description: str = "", input_schema: Any = True
    ) -> None:
        self.key = key
        self.tenant = tenant
        self._document: dict[str, Any] = {"key": key, "steps": []}
        if description:
            self._document["description"] = description
        if input_schema is not True:
            self._document["input_schema"] = input_schema

    def step(
        self,
        name: str,
        definition: Any,
        payload: Any = None,
        *,
        after: "Sequence[FlowStep | str] | FlowStep | str" = (),
        when: Mapping[str, Any] | None = None,
        for_each: Any = None,
        max_items: int | None = None,
        on_failure: "str | FlowStep | Mapping[str, str] | None" = None,
        max_attempts: int | None = None,
        timeout: int | None = None,
        expires_in: float | timedelta | None = None,
        tags: Sequence[str] = (),
        priority: int | None = None,
        host_id: UUID | str | None = None,
        resource_id: UUID | str | None = None,
    ) -> FlowStep:
        """Add a step: a job of a definition (its key, or a function made with @fl.job), after its dependencies.

        `on_failure` is "stop", "continue", or the step that compensates this one.
        """
        work = {
            "definition": getattr(definition, "key", definition),
            "payload": payload,
            "max_attempts": max_attempts,
            "timeout_seconds": timeout,
            "expires_in_seconds": None if expires_in is None else seconds_of(expires_in),
            "host_id": None if host_id is None else str(host_id),
            "resource_id": None if resource_id is None else str(resource_id),
        }
        return self._add(
            name,
            work,
            after=after,
            when=when,
            for_each=for_each,
            max_items=max_items,
            on_failure=on_failure,
            tags=tags,
            priority=priority,
        )

    def sleep(
        self,
        name: str,
        duration: "float | timedelta | str | None" = None,
        *,
        until: "datetime | str | None" = None,
        **options: "Unpack[WaitOptions]",
    ) -> FlowStep:
        """Add a step that ends after seconds or a timedelta, or at a time with its zone; no worker is needed meanwhile.

        Both may be placeholders, such as `{{input.seconds}}`.
        """
        wait = {
            "seconds": _duration(duration),
            "until": until.isoformat() if isinstance(until, datetime) else until,
        }
        return self._add(name, {"sleep": _without_none(wait)}, **options)

    def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        where: Mapping[str, Any] | None = None,
        timeout: "float | timedelta | str | None" = None,
        lookback: "float | timedelta | str | None" = None,
        on_timeout: str | None = None,
        **options: "Unpack[WaitOptions]",
    ) -> FlowStep:
        """Add a step that ends when an event comes that matches the filter: its output is the event, with its `data`.

        An event counts that came since the run started, or within `lookback`. After the timeout the step fails, or with
        `on_timeout="continue"` ends without output.
        """
        wait = {
            "event": event,
            "where": where,
            "timeout_seconds": _duration(timeout),
            "lookback_seconds": _duration(lookback),
            "on_timeout": on_timeout,
        }
        return self._add(name, {"wait_for_event": _without_none(wait)}, **options)

    def approval(
        self,
        name: str,
        title: str,
        *,
        description: str | None = None,
        form: Mapping[str, Any] | None = None,
        roles: Sequence[str] | None = None,
        timeout: "float | timedelta | str | None" = None,
        escalate: str | None = None,
        escalate_after: "float | timedelta | str | None" = None,
        on_timeout: str | None = None,
        on_reject: str | None = None,
        **options: "Unpack[WaitOptions]",
    ) -> FlowStep:
        """Add a step that ends when a person approves; its output is the answer, with the `values` of the form.

        The arguments are those of `ctx.wait_for_approval`. After a rejection or the timeout the step fails, or with
        `on_reject="continue"` and `on_timeout="continue"` it succeeds: then `approved` of its output is false, or it has none.
        """
        wait = {
            "title": title,
            "description": description,
            "form": form,
            "roles": None if roles is None else list(roles),
            "timeout_seconds": _duration(timeout),
            "escalate": escalate,
            "escalate_after_seconds": _duration(escalate_after),
            "on_timeout": on_timeout,
            "on_reject": on_reject,
        }
        return self._add(name, {"approval": _without_none(wait)}, **options)

    def _add(
        self,
        name: str,
        work: Mapping[str, Any],
        *,
        after: "Sequence[FlowStep | str] | FlowStep | str" = (),
        on_failure: "str | FlowStep | Mapping[str, str] | None" = None,
        tags: Sequence[str] | None = None,
        **more: Any,
    ) -> FlowStep:
        said = {
            "name": name,
            **work,
            "after": [getattr(one, "name", one) for one in _as_list(after)] or None,
            "on_failure": {"compensate": on_failure.name} if isinstance(on_failure, FlowStep) else on_failure,
            "tags": list(tags or ()) or None,
            **more,
        }
        self._document["steps"].append(_without_none(said))
        return FlowStep(name)

    def output(self, template: Any) -> None:
        """Set the template of a run's output; the default is the outputs of all steps without successors."""
        self._document["output"] = template

    @property
    def document(self) -> dict[str, Any]:
        """The workflow as JSON, as POST /workflows accepts it."""
        return {**self._document, "steps": list(self._document["steps"])}

    def check(self) -> None:
        """Raise WorkflowInvalid unless every step can run."""
        build_graph(read_workflow(self.document))


class WorkflowRun:
    """A started run: its id, and whether a run with the same key existed before."""

    __slots__ = ("_fl", "deduplicated", "id")

    def __init__(self, fl: "Workflows", started: StartedRun) -> None:
        self._fl = fl
        self.id = started.id
        self.deduplicated = started.deduplicated

    async def read(self) -> RunDetails:
        """The current state of the run and its steps."""
        return await self._fl.read_run(self.id)

    async def cancel(self) -> Run:
        """Cancel the run: queued jobs are canceled, running jobs are asked to stop, and no step starts any more."""
        return await self._fl.cancel_run(self.id)

    async def retry(self) -> Run:
        """Continue the run from the steps that did not succeed."""
        return await self._fl.retry_run(self.id)

    async def result(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the name that users expect
        *,
        look_seconds: float = 0.01,
    ) -> Any:
        """Its output once it succeeded; WorkflowRunFailed if it ended otherwise, ResultTimeout if it takes longer.

        It polls after `look_seconds`, and then less and less often.
        """
        run = await poll_until(
            lambda: self._fl.run_standing(self.id),
            lambda run: run.status is not RunStatus.RUNNING,
            timeout=timeout,
            look_seconds=look_seconds,
        )
        if run.status is RunStatus.SUCCEEDED:
            return run.output
        if run.status is not RunStatus.RUNNING:
            raise run_failure(run)
        raise ResultTimeout(
            f"Run {self.id} of {run.key} is still running after {timeout:g} s. See: fairlead workflows run {self.id}"
        )

    def __repr__(self) -> str:
        return f"<run {self.id}{' (deduplicated)' if self.deduplicated else ''}>"


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _duration(value: "float | timedelta | str | None") -> "float | str | None":
    """Seconds, or a placeholder for them."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def _as_list(after: "Sequence[FlowStep | str] | FlowStep | str") -> "Sequence[FlowStep | str]":
    return [after] if isinstance(after, FlowStep | str) else after


def run_failure(run: Run) -> WorkflowRunFailed:
    """The error for a run that ended without output."""
    error = run.error or {}
    why = [str(error[name]) for name in ("step", "message") if error.get(name)]
    return WorkflowRunFailed(f"Run {run.id} of {run.key} is {': '.join([run.status, *why])}")


class Workflows(Client):
    """`workflow` defines a workflow and `start` runs it; `chain` and `fan_out` run one that needs no name."""

    def __init__(self, settings: Settings, actor: str | None, name: str | None) -> None:
        super().__init__(settings, actor, name)
        self._flows: dict[tuple[str, str], Flow] = {}
        self._published: set[tuple[str, str]] = set()

    def workflow(
        self, key: str, *, tenant: str = GLOBAL_TENANT, description: str = "", input_schema: Any = True
    ) -> Flow:
        """Define a workflow for all tenants, or for one. It is published on open, or at its first start."""
        if (tenant, key) in self._flows:
            raise SignatureInvalid(f"There are two workflows {key!r}; give one of them another key.")
        flow = Flow(key, tenant=tenant, description=description, input_schema=input_schema)
        self._flows[tenant, key] = flow
        self.allow_engine()
        return flow

    def allow_engine(self) -> None:
        """Serve ENGINE_RUN, jobs that run a workflow and end with it, and the jobs of steps that wait."""
        if ENGINE_RUN not in self.functions:
            self.as_job(self._engine_run, ENGINE_OPTIONS)
            for function, options in list_waits():
                self.as_job(function, options)

    async def start(
        self,
        workflow: str | Flow,
        *,
        tenant: str | UUID,
        input: Any = None,  # noqa: A002 - the word that users know
        version: int | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        started_by_job: UUID | None = None,
        part: str | None = None,
    ) -> WorkflowRun:
        """Start a run of a workflow; it is durable when this returns. There is at most one run per `key`."""
        asked = RunRequest(
            tenant=str(tenant),
            input=input,
            version=version,
            unique_key=key,
            correlation_id=correlation_id,
            started_by_job=started_by_job or current_job.get(),
            part=part,
        )
        name = workflow.key if isinstance(workflow, Flow) else workflow

        async def start(fl: Self) -> StartedRun:
            await fl._publish_flows()
            return await fl._act_unhurried(workflows.start, name, asked)

        await self._publish_flows()
        return WorkflowRun(self, await self.cells.in_cell(asked.tenant, start))

    async def chain(
        self, *steps: Any, tenant: str | UUID, key: str | None = None, correlation_id: str | None = None
    ) -> WorkflowRun:
        """Run jobs one after the other: each a definition, or a definition and its payload.

        A payload may use `{{previous.output}}`.
        """
        flow, last = Flow("chain"), list[FlowStep]()
        taken: set[str] = set()
        for one in steps:
            definition, payload = _split_step(one)
            name = _unique_step_name(str(getattr(definition, "key", definition)), taken)
            last = [flow.step(name, definition, payload, after=last)]
        return await self.run_inline(flow, tenant=tenant, key=key, correlation_id=correlation_id)

    async def fan_out(
        self,
        definition: Any,
        payloads: Sequence[Any],
        *,
        tenant: str | UUID,
        join: Any = None,
        payload: Any = None,
        on_failure: str | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        started_by_job: UUID | None = None,
        part: str | None = None,
    ) -> WorkflowRun:
        """Run a job for each payload, then one of `join`, whose payload may use `{{steps.tasks.output}}`."""
        if isinstance(payloads, str | bytes | Mapping) or not isinstance(payloads, Iterable):
            raise InvalidInput(
                "payloads must be a list with one payload per job.", [Fault("payloads", "must be a list")]
            )
        flow = build_fan_out(definition, join=join, payload=payload, on_failure=on_failure)
        return await self.run_inline(
            flow,
            tenant=tenant,
            input={TASKS: list(payloads)},
            key=key,
            correlation_id=correlation_id,
            started_by_job=started_by_job,
            part=part,
        )

    async def run_inline(
        self,
        flow: Flow,
        *,
        tenant: str | UUID,
        input: Any = None,  # noqa: A002
        key: str | None = None,
        correlation_id: str | None = None,
        started_by_job: UUID | None = None,
        part: str | None = None,
    ) -> WorkflowRun:
        """Start a run of a workflow that is not published."""
        asked = RunRequest(
            tenant=str(tenant),
            input=input,
            unique_key=key,
            correlation_id=correlation_id,
            started_by_job=started_by_job or current_job.get(),
            part=part,
        )
        started = await self._act_unhurried_in(asked.tenant, workflows.start_inline, flow.document, asked)
        return WorkflowRun(self, started)

    async def read_run(self, run_id: UUID | str) -> RunDetails:
        """The current state of a run and its steps."""
        return await self._search(workflows.show_run, parse_id(run_id, "run"))

    async def run_standing(self, run_id: UUID | str) -> Run:
        """The current state of a run, without its steps."""
        return await self._search(workflows.get_run, parse_id(run_id, "run"))

    async def cancel_run(self, run_id: UUID | str) -> Run:
        """Cancel a run: queued jobs are canceled, running jobs are asked to stop, and no step starts any more."""
        return await self._search(workflows.cancel, parse_id(run_id, "run"))

    async def retry_run(self, run_id: UUID | str) -> Run:
        """Continue a failed or canceled run from the steps that did not succeed."""
        return await self._search(workflows.retry, parse_id(run_id, "run"))

    def _share_flows(self, other: "Workflows") -> None:
        """Define the same workflows as another client."""
        self._flows = other._flows  # noqa: SLF001 - a client of the same kind

    async def _publish_flows(self) -> None:
        """Publish the workflows of the code that are not published yet: those of all tenants in each cell."""
        new = [name for name in self._flows if name not in self._published]
        if not new:
            return

        async def put_all(tx: Tx) -> None:
            for name in sorted(name for name in new if name[0] == GLOBAL_TENANT):
                await workflows.publish(tx, self.principal, GLOBAL_TENANT, self._flows[name].document)

        await self.database.transact(put_all)
        if self.cell is None:
            for tenant, key in sorted(name for name in new if name[0] != GLOBAL_TENANT):
                await self._act_in(tenant, workflows.publish, tenant, self._flows[tenant, key].document)
        self._published.update(new)

    async def _engine_run(
        self,
        ctx: Context,
        workflow: str,
        input: dict[str, Any] | None = None,  # noqa: A002
        version: int | None = None,
    ) -> Any:
        """Run a workflow of the job's tenant; the job's output is the run's output."""
        try:
            run = await self._act_unhurried(
                workflow_jobs.continue_job,
                ctx.job_id,
                tenant=ctx.tenant,
                workflow=workflow,
                version=version,
                input=input,
                correlation_id=ctx.correlation_id,
            )
        except Refused as refusal:
            raise Fatal(refusal.message) from None
        if run is None:
            return Snooze(LOOK_SECONDS)
        if run.status is not RunStatus.SUCCEEDED:
            raise Fatal(run_failure(run).message)
        return {"run_id": str(run.id), "output": run.output}


def build_fan_out(definition: Any, *, join: Any, payload: Any, on_failure: str | None = None) -> Flow:
    """A workflow with a job for each of `input.tasks`, and a join step that waits for all of them."""
    flow = Flow("fan-out")
    tasks = flow.step(TASKS, definition, "{{item}}", for_each="{{input.tasks}}", on_failure=on_failure)
    if join is not None:
        flow.step(JOIN, join, payload, after=[tasks])
    elif payload is not None:
        raise WorkflowInvalid("payload is only for join: pass join, too.", [Fault("payload", "without join")])
    return flow


def _split_step(step: Any) -> tuple[Any, Any]:
    """The definition and the payload of a chain's step."""
    if not isinstance(step, tuple):
        return step, None
    if len(step) != 2:
        raise InvalidInput(
            "A step of a chain is a definition, or a definition and its payload.",
            [Fault("steps", "a definition, or a pair")],
        )
    return step


def _unique_step_name(key: str, taken: set[str]) -> str:
    """A unique step name from a definition's key."""
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", key)[:56]
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}_{number}"
    taken.add(name)
    return name
