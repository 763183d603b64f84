"""Prints jobs: as a row of a table, and in detail with their attempts."""

from typing import Any

import msgspec
from rich.text import Text

from fairlead.cli import output
from fairlead.model.ansi import AnsiStripper
from fairlead.model.job import OPTIONS, Attempt, Job, JobStatus
from fairlead.model.summary import JobTimes

COLUMNS = ("id", "tenant", "definition", "status", "attempts", "priority", "queued", "due", "error")
# The options of a job that `print_job` shows in its own words.
_SHOWN = {"priority", "scheduled_for", "delay", "max_attempts", "host_id", "resource_id"}
_SHOWN |= {"tags", "timeout", "expires_in", "unique_for", "debounce"}
TIMES_COLUMNS = ("definition", "jobs", "wait p50", "p95", "p99", "run p50", "p95", "p99")


def job_row(job: Job) -> tuple[Any, ...]:
    """A job as a row of a table."""
    due = job.scheduled_for if job.status is JobStatus.QUEUED else None
    return (
        job.id,
        job.tenant,
        job.definition_key,
        job.status,
        job.attempts_in_words,
        job.priority,
        job.queued_at,
        due,
        job.last_error,
    )


def times_row(times: JobTimes) -> tuple[Any, ...]:
    """The wait and run times of a definition's jobs, or of all jobs, as a row."""
    figures = [
        value
        for one in (times.wait_ms, times.run_ms)
        if one is not None
        for value in (one.p50, one.p95, one.p99)
    ]
    return (times.definition_key or "all", times.jobs, *figures)


def print_job(job: Job) -> None:
    """Print a job in detail."""
    pairs = [
        ("id", job.id),
        ("tenant", job.tenant),
        ("definition", job.definition_key),
        ("status", output.render_cell(job.status)),
        ("attempts", f"{job.attempt_count} (failures: {job.failure_count} of at most {job.max_attempts})"),
        ("priority", job.priority),
        ("source", job.source),
        ("created by", job.created_by),
        ("queued", output.format_moment(job.queued_at)),
        ("scheduled for", output.format_moment(job.scheduled_for)),
        ("expires", output.format_moment(job.expires_at) if not job.attempt_count else None),
        ("started", output.format_moment(job.started_at)),
        ("finished", output.format_moment(job.finished_at)),
        ("progress", _format_progress(job.progress)),
        ("cancel requested", output.format_moment(job.cancel_requested_at)),
        ("tags", ", ".join(job.tags) if job.tags else None),
        ("timeout", None if job.timeout_seconds is None else f"{job.timeout_seconds} s"),
        ("host", job.host_id),
        ("resource", job.resource_id),
        *((name.replace("_", " "), getattr(job, name)) for name in OPTIONS if name not in _SHOWN),
        ("payload", msgspec.json.encode(job.payload).decode()),
        ("output", None if job.output is None else msgspec.json.encode(job.output).decode()),
        ("error", job.last_error),
    ]
    output.print_facts((name, value) for name, value in pairs if value is not None)


def print_traceback(job: Job) -> None:
    """Print the traceback of the last failed attempt, if it is stored."""
    if isinstance(job.error, dict) and (trace := job.error.get("traceback")):
        output.console().print(Text("\n" + AnsiStripper().text(trace).rstrip()))


def _format_progress(reported: Any) -> str | None:
    return f"{reported['percent']:g} %  {reported['message']}".rstrip() if reported else None


def _format_exit(attempt: Attempt) -> str | None:
    """The exit code or the signal of an attempt's process, if it had one."""
    if attempt.signal is not None:
        return f"signal {attempt.signal}"
    return None if attempt.exit_code is None else f"exit {attempt.exit_code}"


def print_attempts(attempts: list[Attempt]) -> None:
    """Print attempts, one per line."""
    if attempts:
        output.print_table(
            ("attempt", "status", "started", "ms", "worker", "pid", "ended with", "error"),
            [
                (
                    a.attempt_no,
                    a.status,
                    a.started_at,
                    a.duration_ms,
                    a.worker_id,
                    a.pid,
                    _format_exit(a),
                    a.error_text,
                )
                for a in attempts
            ],
            empty="",
        )
