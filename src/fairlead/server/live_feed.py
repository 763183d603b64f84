"""A tenant's changes as live frames, found by polling, so that workers' statements cost nothing extra.

Changes come from the end of the audit log, starts and progress from the leases. Rows become visible after their
timestamp: each poll goes back a little and skips what was sent. Changes that it misses all the same (by a long
transaction, or successes that are not audited) show in the counts, and are sent as `jobs.changed`.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from fairlead.actions import live
from fairlead.actions.live import AttemptState, AuditChange, RunningAttempt
from fairlead.db.tx import Tx
from fairlead.model.job import JobStatus
from fairlead.model.secrets.redact import Mask

# How far back a poll goes: the time between a row's timestamp and its commit.
OVERLAP = timedelta(seconds=3)
MOST_CHANGES = 500
MOST_RUNNING = 500
MOST_REMEMBERED = 4 * MOST_CHANGES
# Queued jobs to watch: one of their attempts may begin and end between two polls.
MOST_WAITING = 200
LONGEST_TEXT = 200
# How often jobs are counted, and how often `jobs.changed` is sent in a flood.
COUNT_SECONDS = 1.0
# Slow counts are repeated less often: at most 1/20 of the time is spent counting.
COUNT_REST_FACTOR = 20
LOOK_SECONDS = 0.25

AttemptKey = tuple[UUID, int]

_SINGLE = {
    "job_created": ("job.created", "queued"),
    "JOB_RETRIED": ("job.retried", "queued"),
    "JOB_CANCELED": ("job.canceled", "canceled"),
    "JOB_CANCEL_REQUESTED": ("job.cancel_requested", "running"),
}
_ENDS = {
    "succeeded": "job_run.completed",
    "failed": "job_run.failed",
    "timeout": "job_run.failed",
    "lost": "job_run.failed",
    "canceled": "job.canceled",
    "released": "job_run.released",
}


class Frame(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One change. It has no payload and no output: clients fetch the job for those."""

    type: str
    at: datetime
    cursor: str = ""
    tenant_id: UUID | None = None
    job_id: UUID | None = None
    definition_key: str | None = None
    status: str | None = None
    attempt_no: int | None = None
    job_run_id: UUID | None = None
    duration_ms: int | None = None
    error: str | None = None
    progress: dict[str, Any] | None = None
    gate: str | None = None
    name: str | None = None
    paused: bool | None = None
    worker_id: str | None = None
    counts: dict[str, int] | None = None


def encode_frame(frame: Frame, cursor: datetime) -> str:
    """Encode a frame with its cursor."""
    return msgspec.json.encode(msgspec.structs.replace(frame, cursor=cursor_at(cursor))).decode()


def cursor_at(moment: datetime) -> str:
    """The cursor of a time."""
    return str(int(moment.timestamp() * 1_000_000))


def parse_cursor(cursor: str) -> datetime | None:
    """The time of a cursor; None if it is invalid."""
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 16):
        return None
    return datetime.fromtimestamp(int(cursor) / 1_000_000, UTC)


class TenantWatch:
    """The known state of a tenant (None: of all tenants), and what is new at each poll."""

    def __init__(
        self, tenant_id: UUID | None, since: datetime | None = None, *, mask: Mask | None = None
    ) -> None:
        """With `since`, the first poll returns the changes from then on; otherwise it returns none."""
        self.tenant_id = tenant_id
        self._mask = mask
        self.flooded = False
        # seconds between `jobs.changed` frames in a flood: more for many sockets
        self.calm_seconds = COUNT_SECONDS
        self.looked_at = since
        self._send_from = since
        self._seen: set[tuple[datetime, str, str | None]] = set()
        self._running: dict[AttemptKey, Any] | None = None if since is None else {}
        self._ended: dict[AttemptKey, None] = {}
        self._waiting: dict[UUID, int] = {}
        self._counts: dict[str, int] | None = None
        self._counted_at: datetime | None = None
        self._count_pause = COUNT_SECONDS
        self._stale = False
        self._has_sent = False

    @property
    def pause(self) -> float:
        """Seconds until the next poll."""
        return self.calm_seconds if self.flooded else LOOK_SECONDS

    async def look(self, tx: Tx, most: int) -> list[Frame]:
        """New frames, oldest first; if they are more than `most`, only `jobs.changed`."""
        now = await live.read_clock(tx)
        changes = await self._read_changes(tx, now)
        running = await live.list_running(tx, tenant_id=self.tenant_id, limit=MOST_RUNNING + 1)
        if self.looked_at is None:
            frames: list[Frame] = []
            self._remember_running(running)
        else:
            frames = await self._new_frames(tx, now, changes, running, most)
        self.looked_at = now if not self.flooded else max((c.at for c in changes), default=now) + OVERLAP
        self._has_sent = self._has_sent or bool(frames)
        return frames + await self._count_frames(tx, now)

    async def _read_changes(self, tx: Tx, now: datetime) -> list[AuditChange]:
        """New audit entries, oldest first."""
        since = (self.looked_at or now) - OVERLAP
        found = await live.list_changes(tx, tenant_id=self.tenant_id, since=since, limit=MOST_CHANGES + 1)
        fresh = [one for one in reversed(found) if _change_key(one) not in self._seen]
        self._seen = {_change_key(one) for one in found}
        return fresh

    async def _new_frames(
        self,
        tx: Tx,
        now: datetime,
        changes: Sequence[AuditChange],
        running: Sequence[RunningAttempt],
        most: int,
    ) -> list[Frame]:
        before = self._running
        crowded = len(running) > MOST_RUNNING
        self._remember_running(running)
        started = (
            [] if before is None or crowded else [one for one in running if _attempt_key(one) not in before]
        )
        gone = (
            []
            if before is None or crowded
            else sorted(before.keys() - {_attempt_key(one) for one in running})
        )
        since = (self.looked_at or now) - OVERLAP
        quick = await live.list_newer_attempts(tx, self._waiting, since=since) if self._waiting else []
        ended = self._drop_known([*_ended_attempts(changes), *gone, *quick])
        self.flooded = len(changes) + len(started) + len(ended) > most
        if self.flooded:
            self._stale = True
            self._remember_ended(ended)
            self._waiting.clear()
            return []
        self._stale = self._stale or any(_is_bulk(one) for one in changes)
        frames = [frame for one in changes if (frame := _change_frame(one)) is not None]
        for frame in frames:
            if frame.job_id is not None:
                self._note_waiting(frame.job_id, 0 if frame.status == "queued" else None)
        frames += [
            _start_frame(one)
            for one in started
            if self._send_from is None or one.started_at >= self._send_from
        ]
        if before is not None:
            frames += [
                _progress_frame(one, now)
                for one in running
                if one.progress is not None and before.get(_attempt_key(one)) != one.progress and not crowded
            ]
        known = before.keys() if before is not None else set()
        for one in await live.list_attempts(tx, ended):
            self._note_waiting(one.job_id, one.attempt_no if one.status is JobStatus.QUEUED else None)
            frames += _end_frames(one, start_told=(one.job_id, one.attempt_no) in known)
        self._remember_ended(ended)
        return sorted(map(self._mask_frame, frames), key=lambda frame: frame.at)

    def _mask_frame(self, frame: Frame) -> Frame:
        """Apply the settings' redact patterns to the error and the progress, which handlers write."""
        if self._mask is None or (frame.error is None and frame.progress is None):
            return frame
        error = None if frame.error is None else self._mask.text(frame.error)
        return msgspec.structs.replace(frame, error=error, progress=self._mask.value(frame.progress))

    def _remember_running(self, running: Sequence[RunningAttempt]) -> None:
        crowded = len(running) > MOST_RUNNING
        self._running = None if crowded else {_attempt_key(one): one.progress for one in running}

    def _drop_known(self, ended: Iterable[AttemptKey]) -> list[AttemptKey]:
        return [key for key in dict.fromkeys(ended) if key not in self._ended]

    def _note_waiting(self, job_id: UUID, attempt_no: int | None) -> None:
        """Note that a job is queued after this attempt; None if it is no longer queued."""
        self._waiting.pop(job_id, None)
        if attempt_no is not None:
            self._waiting[job_id] = attempt_no
            if len(self._waiting) > MOST_WAITING:
                del self._waiting[next(iter(self._waiting))]

    def _remember_ended(self, ended: Iterable[AttemptKey]) -> None:
        self._ended |= dict.fromkeys(ended)
        for key in list(self._ended)[:-MOST_REMEMBERED]:
            del self._ended[key]

    async def _count_frames(self, tx: Tx, now: datetime) -> list[Frame]:
        """Now and then: the counts by status, if they changed without another frame."""
        pause = max(self._count_pause, self.calm_seconds)
        if self._counted_at is not None and (now - self._counted_at).total_seconds() < pause:
            return []
        begun = time.monotonic()
        counts = await live.count_jobs(tx, tenant_id=self.tenant_id)
        self._count_pause = max(COUNT_SECONDS, (time.monotonic() - begun) * COUNT_REST_FACTOR)
        levels = {status.value: number for status, number in counts.by_status.items()}
        unsaid = self._counts is not None and levels != self._counts and not self._has_sent
        stale = self._stale
        self._counts, self._counted_at, self._stale, self._has_sent = levels, now, False, False
        if not (stale or unsaid):
            return []
        return [Frame(type="jobs.changed", at=now, tenant_id=self.tenant_id, counts=levels)]


def gate_frame(change: AuditChange) -> Frame | None:
    """The frame of a gate that was closed or opened."""
    kind, _, what = change.action.rpartition("_")
    if kind != change.resource_type or what not in ("paused", "resumed"):
        return None
    return Frame(
        type="gate.changed",
        at=change.at,
        tenant_id=change.tenant_id,
        gate=kind,
        name=change.name,
        paused=what == "paused",
    )


def _change_key(change: AuditChange) -> tuple[datetime, str, str | None]:
    return change.at, change.action, change.resource_id


def _attempt_key(one: RunningAttempt) -> AttemptKey:
    return one.job_id, one.attempt_no


def _ended_attempts(changes: Iterable[AuditChange]) -> list[AttemptKey]:
    """The attempts that ended: only the entry of a finish names an attempt."""
    return [
        (UUID(one.resource_id), one.attempt_no)
        for one in changes
        if one.resource_type == "job" and one.resource_id is not None and one.attempt_no is not None
    ]


def _is_bulk(change: AuditChange) -> bool:
    return change.resource_type == "job" and change.resource_id is None


def _change_frame(change: AuditChange) -> Frame | None:
    if change.resource_type != "job":
        return gate_frame(change)
    if change.action not in _SINGLE or change.attempt_no is not None or change.resource_id is None:
        return None
    kind, status = _SINGLE[change.action]
    return Frame(
        type=kind,
        at=change.at,
        tenant_id=change.tenant_id,
        job_id=UUID(change.resource_id),
        definition_key=change.definition_key,
        status=status,
    )


def _start_frame(one: RunningAttempt | AttemptState) -> Frame:
    return Frame(
        type="job_run.started",
        at=one.started_at,
        tenant_id=one.tenant_id,
        job_id=one.job_id,
        definition_key=one.definition_key,
        status="running",
        attempt_no=one.attempt_no,
        job_run_id=one.run_id,
    )


def _progress_frame(one: RunningAttempt, now: datetime) -> Frame:
    progress = dict(one.progress) if isinstance(one.progress, dict) else {}
    message = progress.get("message")
    return Frame(
        type="job_run.progress",
        at=now,
        tenant_id=one.tenant_id,
        job_id=one.job_id,
        definition_key=one.definition_key,
        status="running",
        attempt_no=one.attempt_no,
        job_run_id=one.run_id,
        progress={
            "percent": progress.get("percent"),
            "message": message[:LONGEST_TEXT] if isinstance(message, str) else None,
        },
    )


def _end_frames(one: AttemptState, *, start_told: bool) -> list[Frame]:
    """The end of an attempt, after its start if no poll saw that."""
    if one.finished_at is None:
        return []
    end = Frame(
        type=_ENDS[one.attempt_status],
        at=one.finished_at,
        tenant_id=one.tenant_id,
        job_id=one.job_id,
        definition_key=one.definition_key,
        status=one.status.value,
        attempt_no=one.attempt_no,
        job_run_id=one.run_id,
        duration_ms=one.duration_ms,
        error=one.error,
    )
    return [end] if start_told else [_start_frame(one), end]
