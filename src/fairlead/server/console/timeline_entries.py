"""The rows of the timelines of jobs and runs. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from fairlead.actions.timeline import MOST_ATTEMPTS, Spans
from fairlead.model.job import Job
from fairlead.model.timeline import AttemptSpan, StepTimes
from fairlead.model.workflow.run import Run
from fairlead.server.console.timeline import Phase, TimelineEntry
from fairlead.server.console.visit import Visit

# A job that runs a workflow ends its attempt while it waits for the run.
RELEASED = "released"
# A job ends a moment after its last attempt; a longer time is a wait.
MOMENT = timedelta(seconds=1)


def job_phases(
    queued_at: datetime, finished_at: datetime | None, spans: Sequence[AttemptSpan]
) -> list[Phase]:
    """A job's wait, its attempts, and the pauses between them; attempts after MOST_ATTEMPTS are one phase."""
    if not spans:
        return [Phase("wait", "queued", queued_at, finished_at, "Waited")]
    phases = [Phase("wait", "queued", queued_at, max(queued_at, spans[0].started_at), "Waited")]
    drawn = spans[:MOST_ATTEMPTS]
    for one, other in pairwise(drawn):
        end = one.finished_at or other.started_at
        phases.append(_attempt_phase(one, end))
        pause = "Waited to continue" if one.status == RELEASED else f"Waited for attempt {other.attempt_no}"
        phases.append(Phase("retry", "queued", end, max(end, other.started_at), pause))
    last = drawn[-1]
    phases.append(_attempt_phase(last, last.finished_at))
    if len(spans) > len(drawn):
        end = last.finished_at or spans[-1].started_at
        phases.append(Phase("more", "queued", end, finished_at, f"Attempts after attempt {last.attempt_no}"))
    elif last.finished_at is not None and (finished_at is None or finished_at - last.finished_at > MOMENT):
        phases.append(Phase("retry", "queued", last.finished_at, finished_at, "Waited for the next attempt"))
    return phases


def _attempt_phase(one: AttemptSpan, end: datetime | None) -> Phase:
    return Phase("run", one.status, one.started_at, end, f"Attempt {one.attempt_no}, {one.status}")


def job_entry(visit: Visit, job: Job, spans: Spans, *, level: int = 0) -> TimelineEntry:
    """The row of a job."""
    return TimelineEntry(
        name=job.definition_key,
        href=visit.to(f"/jobs/{job.id}"),
        state=str(job.status),
        phases=job_phases(job.queued_at, job.finished_at, spans.get(job.id, ())),
        level=level,
        note=_describe_job(job, level),
    )


def _describe_job(job: Job, level: int) -> str:
    """The attempts; of a child also its short id, since all children may have one name."""
    attempts = _count_attempts(job.attempt_count) if level == 0 or job.attempt_count > 1 else ""
    return attempts if level == 0 else f"{str(job.id)[-8:]} {attempts}".rstrip()


def run_entry(visit: Visit, run: Run) -> TimelineEntry:
    """The row of a run."""
    phase = Phase("run", str(run.status), run.created_at, run.finished_at, "Run")
    return TimelineEntry(run.key, visit.to(f"/workflow-runs/{run.id}"), str(run.status), [phase])


def step_entries(visit: Visit, run: Run, steps: Iterable[StepTimes], spans: Spans) -> Iterator[TimelineEntry]:
    """The rows of a run's steps; below a step that runs a workflow, the row of that run."""
    for step in steps:
        found = spans.get(step.job_id, ()) if step.job_id is not None else ()
        yield TimelineEntry(
            name=step.name,
            href=visit.to(f"/workflow-runs/{run.id}/step", place=step.place),
            state=str(step.state),
            phases=_step_phases(step, found),
            level=1,
            note=f"{step.items:,} items" if step.items is not None else _note_retries(found),
        )
        if step.run_id is not None and step.run_created_at is not None:
            phase = Phase("run", str(step.run_status), step.run_created_at, step.run_finished_at, "Run")
            name = step.run_key or "workflow"
            yield TimelineEntry(
                name, visit.to(f"/workflow-runs/{step.run_id}"), str(step.run_status), [phase], 2, "run"
            )


def _step_phases(step: StepTimes, spans: Sequence[AttemptSpan]) -> list[Phase]:
    if step.items is None:
        return job_phases(step.queued_at, step.finished_at, spans)
    if step.started_at is None:
        return [Phase("wait", "queued", step.queued_at, step.finished_at, "Waited")]
    return [
        Phase(
            "wait",
            "queued",
            step.queued_at,
            max(step.queued_at, step.started_at),
            "Waited for the first item",
        ),
        Phase("run", str(step.state), step.started_at, step.finished_at, "From the first item to the last"),
    ]


def _note_retries(spans: Sequence[AttemptSpan]) -> str:
    if len(spans) > MOST_ATTEMPTS:
        return f"more than {MOST_ATTEMPTS} attempts"
    return _count_attempts(len(spans)) if len(spans) > 1 else ""


def _count_attempts(number: int) -> str:
    return f"{number} attempt{'' if number == 1 else 's'}" if number else ""
