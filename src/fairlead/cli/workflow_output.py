"""Prints workflows and their runs: as tables, in detail, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from rich.text import Text

from fairlead.actions.workflows import RunDetails
from fairlead.cli import output
from fairlead.cli.tenant_names import Slugs, slug_of
from fairlead.model.workflow.run import PublishedWorkflow, Run, RunStatus, RunStep
from fairlead.model.workflow.waits import describe_work

# JSON


def document(one: PublishedWorkflow) -> dict[str, Any]:
    """A workflow as JSON, without internal fields."""
    return _struct_fields(one, "secret_paths")


def summary_document(one: PublishedWorkflow, slugs: Mapping[UUID, str]) -> dict[str, Any]:
    """A workflow in a list as JSON: the number of its steps, without the steps."""
    kept = _struct_fields(one, "secret_paths", "spec")
    summary = {"description": _description(one), "steps": len(one.spec["steps"])}
    return {**kept, **summary, "tenant": slugs.get(one.tenant_id)}


def run_document(run: Run) -> dict[str, Any]:
    """A run as JSON."""
    return _struct_fields(run, "secret_paths")


def run_with_steps_document(shown: RunDetails) -> dict[str, Any]:
    """A run with its steps as JSON."""
    return {
        "run": run_document(shown.run),
        "steps": [_step_document(step) for step in shown.steps],
        "counts": shown.states,
        "next_first": shown.next_place,
    }


def _step_document(step: RunStep) -> dict[str, Any]:
    kept = _struct_fields(step, "spec", "before", "compensation", "on_failure", "last_error")
    said = {"after": _previous_steps(step.spec), "on_failure": step.spec.get("on_failure", "stop")}
    return {**kept, **said, "error": step.trouble}


def _struct_fields(thing: Any, *without: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__struct_fields__ if name not in without}


# Text


def print_workflows(found: Sequence[PublishedWorkflow], slugs: Mapping[UUID, str]) -> None:
    """Print workflows, one per line."""
    output.print_table(
        ("key", "tenant", "version", "steps", "published", "description"),
        [
            (
                one.key,
                "shared by all" if one.is_shared else slugs.get(one.tenant_id),
                one.version,
                len(one.spec["steps"]),
                one.created_at,
                _description(one) or None,
            )
            for one in found
        ],
        empty="No workflows. Publish one with: fairlead workflows put FILE",
    )


def print_workflow(one: PublishedWorkflow, slugs: Slugs) -> None:
    """Print a workflow in detail."""
    spec = one.spec
    pairs = [
        ("key", one.key),
        ("version", one.version),
        ("for", "every tenant" if one.is_shared else f"tenant {slug_of(one.tenant_id, slugs)}"),
        ("description", _description(one) or None),
        ("input", _json(spec["input_schema"]) if "input_schema" in spec else None),
        ("output", _json(spec["output"]) if "output" in spec else None),
        ("published", f"{output.format_moment(one.created_at)} by {one.created_by}"),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)
    output.console().print()
    output.print_table(
        ("step", "definition", "after", "for each", "when", "on failure", "payload"),
        [
            (
                step["name"],
                describe_work(step),
                ", ".join(_previous_steps(step)) or None,
                _json(step["for_each"]) if "for_each" in step else None,
                _json(step["when"]) if "when" in step else None,
                _format_on_failure(step.get("on_failure", "stop")),
                _json(step.get("payload", {})),
            )
            for step in spec["steps"]
        ],
        empty="",
    )


def print_runs(found: Sequence[Run]) -> None:
    """Print runs, one per line."""
    output.print_table(
        ("id", "tenant", "workflow", "version", "status", "steps", "running", "started", "took", "error"),
        [
            (
                run.id,
                run.tenant,
                run.key,
                run.version,
                run.status,
                run.steps,
                run.live,
                run.created_at,
                _format_duration(run.created_at, run.finished_at),
                _format_error(run),
            )
            for run in found
        ],
        empty="No matching runs. Start one with: fairlead workflows start KEY --tenant TENANT",
    )


def print_run(shown: RunDetails) -> None:
    """Print a run: its error first, then its state and its steps."""
    run = shown.run
    if error := _format_error(run):
        output.console().print(Text.assemble(("error ", "bold red"), error))
    counts = ", ".join(f"{number} {state}" for state, number in sorted(shown.states.items()))
    asked = run.status is RunStatus.RUNNING and run.cancel_requested_at
    pairs = [
        ("id", run.id),
        ("tenant", run.tenant),
        ("workflow", run.key if run.version is None else f"{run.key} version {run.version}"),
        ("status", output.render_cell(run.status)),
        ("cancel requested", output.format_moment(run.cancel_requested_at) if asked else None),
        ("steps", counts),
        ("started", f"{output.format_moment(run.created_at)} by {run.created_by}"),
        ("finished", output.format_moment(run.finished_at)),
        ("for job", run.parent_job_id),
        ("started by job", None if run.parent_job_id else run.started_by_job),
        ("correlation id", run.correlation_id),
        ("input", _json(run.input)),
        ("output", None if run.output is None else _json(run.output)),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)
    output.console().print()
    _steps_table(shown.steps)
    if shown.next_place is not None:
        output.console(stderr=True).print(f"more: --first {shown.next_place}", style="dim")


def _steps_table(steps: Sequence[RunStep]) -> None:
    output.print_table(
        (
            "step",
            "state",
            "definition",
            "after",
            "jobs",
            "attempts",
            "started",
            "waited",
            "ran",
            "error",
            "job",
        ),
        [
            (
                step.name,
                step.state,
                step.work,
                ", ".join(_previous_steps(step.spec)) or None,
                _format_jobs(step),
                step.attempt_count,
                step.started_at,
                _format_seconds(step.queue_ms),
                _format_seconds(step.duration_ms),
                step.trouble and step.trouble.get("message"),
                step.job_id,
            )
            for step in steps
        ],
        empty="There are no steps from this position on.",
    )


def _format_jobs(step: RunStep) -> str | None:
    """For a step with for_each: how many of its jobs have ended, and how many failed."""
    if step.items is None:
        return None
    over = f"{step.items - step.remaining}/{step.items}"
    return f"{over}, {step.failed} failed" if step.failed else over


def _format_error(run: Run) -> str | None:
    if not run.error:
        return None
    step = f"step {run.error['step']}: " if "step" in run.error else ""
    return f"{step}{run.error.get('message')}"


def _format_seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:.1f} s"


def _format_duration(begun: Any, over: Any) -> str | None:
    return None if begun is None or over is None else f"{(over - begun).total_seconds():.1f} s"


def _previous_steps(step: Any) -> list[str]:
    return list(step.get("after", ()))


def _format_on_failure(said: Any) -> str:
    return str(said) if isinstance(said, str) else f"then {said['compensate']}"


def _description(one: PublishedWorkflow) -> str:
    return str(one.spec.get("description", ""))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
