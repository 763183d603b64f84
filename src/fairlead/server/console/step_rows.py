"""The steps of a durable function in the order of its code, as rows of the job's page and of its timeline. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from fairlead.actions.timeline import Spans
from fairlead.model.durable import JobStep, StepKind, StepStatus
from fairlead.model.job import Job
from fairlead.server.console.timeline import Phase, TimelineEntry
from fairlead.server.console.timeline_entries import job_phases
from fairlead.server.console.visit import Visit

# They take no time.
INSTANT = (StepKind.NOW, StepKind.VERSION)


class StepRow(msgspec.Struct, frozen=True):
    """A step, how deep its branch is, and the name of the branch if the step is the first of it here."""

    step: JobStep
    # 'canceled': a wait of a job that has ended
    status: str
    level: int
    branch: str | None
    # how long it ran or waited; None while it does
    seconds: float | None


def list_rows(job: Job, steps: Iterable[JobStep]) -> list[StepRow]:
    """The steps, each branch where its function began it."""
    rows: list[StepRow] = []
    before = ""
    for step in sorted(steps, key=_build_key):
        path = step.branch.split("/")[1:]
        is_first = step.branch != before and not before.startswith(f"{step.branch}/")
        name = f"branch {int(path[-1].split('.')[-1]) + 1}" if path and is_first else None
        end = _find_end(job, step)
        seconds = None if end is None else max(0.0, (end - step.started_at).total_seconds())
        rows.append(StepRow(step, _find_status(job, step), len(path), name, seconds))
        before = step.branch
    return rows


def _build_key(step: JobStep) -> tuple[tuple[int, ...], ...]:
    """A branch such as /2.0.1 began before call 2 of its parent, in its gather 0, as argument 1."""
    parts = [tuple(map(int, part.split("."))) for part in step.branch.split("/")[1:]]
    return (*((at, 0, gather, index) for at, gather, index in parts), (step.number - 1, 1))


def _find_status(job: Job, step: JobStep) -> str:
    if step.status is StepStatus.WAITING and job.status.terminal:
        return "canceled"
    return "failed" if step.status is StepStatus.RETRY else str(step.status)


def _find_end(job: Job, step: JobStep) -> datetime | None:
    """When it ended; also the wait of a job that has ended. A step between two tries has not ended."""
    if step.status is StepStatus.WAITING:
        return job.finished_at
    return step.ended_at


def step_entries(
    visit: Visit, job: Job, rows: Sequence[StepRow], children: Mapping[UUID, Job], spans: Spans
) -> Iterator[TimelineEntry]:
    """The rows of a timeline; that of a call has the attempts of its child."""
    for row in rows:
        step = row.step
        if step.kind in INSTANT:
            continue
        child = children.get(step.child_id) if step.child_id is not None else None
        yield TimelineEntry(
            name=step.name,
            href=visit.to(f"/jobs/{step.child_id}") if step.child_id is not None else None,
            state=row.status if child is None else str(child.status),
            phases=_list_phases(job, step)
            if child is None
            else job_phases(child.queued_at, child.finished_at, spans.get(child.id, ())),
            level=1 if row.level == 0 else 2,
            note=_describe(step),
        )


def _list_phases(job: Job, step: JobStep) -> list[Phase]:
    if step.kind is not StepKind.STEP:
        return [Phase("wait", "queued", step.started_at, _find_end(job, step), "Waited")]
    failed = step.status is not StepStatus.SUCCEEDED
    ended = Phase(
        "run", "failed" if failed else "succeeded", step.started_at, step.ended_at, f"Try {step.tries}"
    )
    if step.status is not StepStatus.WAITING or step.ended_at is None:
        return [ended]
    return [
        ended,
        Phase("retry", "queued", step.ended_at, _find_end(job, step), f"Waited for try {step.tries + 1}"),
    ]


def _describe(step: JobStep) -> str:
    if step.kind is StepKind.STEP:
        return f"{step.tries} tries" if step.tries > 1 else ""
    return f"child {str(step.child_id)[-8:]}" if step.child_id is not None else str(step.kind)
