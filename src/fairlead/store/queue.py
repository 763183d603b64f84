"""The queue: claim, heartbeat, finish."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec
import structlog

from fairlead.db.arrays import IntegerArray, TextArray, UuidArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import JsonText, Tx, json_text
from fairlead.errors import FairleadError, SealBroken
from fairlead.model.job import JobStatus, Lease
from fairlead.model.outcome import Backoff, Change, Failed, Snoozed, decide
from fairlead.model.secrets.sealed_payload import MARK, list_key_ids, open_values
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.store import durable, sealing

sql = queries_beside(__file__)
log = structlog.get_logger(__name__)

# The statuses of jobs that failed for good.
FAILURES = (JobStatus.FAILED, JobStatus.DEAD_LETTER)
# Pairs of tenant and definition that are visited to sum up the weights of waiting tenants.
MOST_WEIGHED_PAIRS = 2000
_FINISH_WITH_FAILURES = sql.finish.replace("-- <note failures>", sql.note_failures)


class Cursor(NamedTuple):
    """A worker's position in the rotation of tenants, and the rest of that tenant's turn."""

    tenant: UUID | None = None
    credit: int = 0


_UNKNOWN: Any = None
_SEALED = MARK.decode()
# When a job, a trigger or a step whose keys are missing is tried again.
UNREADABLE_SECONDS = 15.0
_NO_LABELS = json_text({})


@lru_cache(10_000)
def _tenant_name(name: str, slug: str) -> "TenantName":
    """Cached: the same tenants come with every claim, and parsing a UUID costs more than starting a job."""
    return TenantName(UUID(name), slug)


class TenantName(msgspec.Struct, frozen=True):
    """The tenant of claimed jobs."""

    id: UUID
    slug: str


class AttemptTerms(msgspec.Struct, array_like=True, frozen=True):
    """The settings of a definition that apply to every attempt."""

    key: str
    timeout_seconds: int
    backoff: Backoff
    secret_paths: tuple[str, ...] = ()
    slots: int = 1


class Claimed(msgspec.Struct, array_like=True):
    """A claimed job and all that is needed to run it, as fairlead.claim returns it."""

    job_id: UUID
    attempt_no: int
    tenant_named: str
    definition_place: int
    payload: Any
    max_attempts: int
    failure_count: int = 0
    lost_count: int = 0
    parent_id: UUID | None = None
    correlation_id: str | None = None
    # looked up from `tenant_named` and `definition_place`
    whose: TenantName = _UNKNOWN
    terms: AttemptTerms = _UNKNOWN
    trace: str | None = None
    # seconds from its due time to this claim, if requested
    waited: float = 0.0
    # the job's own time limit and secret paths
    own_timeout: int | None = None
    own_secrets: tuple[str, ...] = ()
    # the attempt's id, if requested
    run_id: UUID | None = None
    # for a suspect: the seconds for which its worker starts no other job
    probation: float = 0.0
    # why its sealed payload cannot be opened; it must not be started then
    trouble: FairleadError | None = None

    @property
    def tenant(self) -> str:
        return self.whose.slug

    @property
    def tenant_id(self) -> UUID:
        return self.whose.id

    @property
    def definition_key(self) -> str:
        return self.terms.key

    @property
    def timeout_seconds(self) -> int:
        return self.own_timeout or self.terms.timeout_seconds

    @property
    def backoff(self) -> Backoff:
        return self.terms.backoff

    @property
    def slots(self) -> int:
        return self.terms.slots

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """The paths of secrets in the payload."""
        return self.terms.secret_paths + self.own_secrets


class _Document(msgspec.Struct):
    """The result of fairlead.claim."""

    cursor: tuple[UUID, int] | None = None
    busy: bool = False
    crowded: bool | None = False
    opens_in: float | None = None
    short_of: int | None = None
    again: bool = False
    tenants: dict[str, str] = {}
    definitions: list[AttemptTerms] = []
    jobs: list[Claimed] = []
    # only jobs that belong to a trace
    traces: dict[UUID, str] | None = None
    waits: dict[UUID, float] | None = None
    # only jobs that have their own
    timeouts: dict[UUID, int] | None = None
    secrets: dict[UUID, tuple[str, ...]] | None = None
    # the jobs that are steps of runs
    steps: list[UUID] | None = None
    # only suspects
    probations: dict[UUID, float] | None = None
    # whether a suspect waits, for `only_look`
    waiting: bool = False

    def copy_job_values(self) -> None:
        """Copy the values of single jobs into the jobs."""
        if self.traces:
            for job in self.jobs:
                job.trace = self.traces.get(job.job_id)
        if self.waits:
            for job in self.jobs:
                job.waited = self.waits[job.job_id]
        if self.timeouts:
            for job in self.jobs:
                job.own_timeout = self.timeouts.get(job.job_id)
        if self.secrets:
            for job in self.jobs:
                job.own_secrets = self.secrets.get(job.job_id, ())


_document = msgspec.json.Decoder(_Document)
_statuses = msgspec.json.Decoder(dict[UUID, JobStatus] | None)


class Claim(msgspec.Struct, frozen=True):
    """The result of a claim: jobs, the token of their leases, and the cursor for the next claim.

    `busy`: another claim held the same limit, so claim again soon. `crowded`: jobs wait for a limit, so claim again when a
    job of this worker has ended.
    """

    jobs: list[Claimed]
    token: UUID
    cursor: Cursor
    busy: bool = False
    crowded: bool = False
    # the seconds until the next start, if jobs wait for a rate, or for workers with other labels
    opens_in: float | None = None
    # keys held jobs back, and others may have been behind them
    again: bool = False
    # the jobs that are steps of runs, or wait for runs
    of_runs: Sequence[UUID] = ()
    # how many slots the next job needs, if it needs more than were left
    short_of: int | None = None

    def lease(self, job: Claimed) -> Lease:
        return Lease(job.job_id, job.attempt_no, self.token)


async def claim(
    tx: Tx,
    *,
    worker: str,
    wanted: int,
    lease_seconds: float,
    served: Sequence[UUID] | None = None,
    served_pairs: Sequence[tuple[UUID, UUID]] = (),
    cursor: Cursor = Cursor(),  # noqa: B008 - immutable
    host: UUID | None = None,
    waits: bool = False,
    token: UUID | None = None,
    labels: Mapping[str, str] | None = None,
    most_slots: int | None = None,
    prefer_seconds: float = 5.0,
) -> Claim:
    """Take up to `wanted` jobs that are due, served and held back by no gate or limit: fair between tenants.

    It serves the definitions in `served` (None: all), and those in `served_pairs` for one tenant each. With `waits`
    each job has its waiting time. `token` sets the token of the leases, for callers that need to know it beforehand.

    `labels` are those of the worker. With `most_slots`, the jobs take up to `wanted` slots together, and jobs that need
    more than `most_slots` are left to others; without it, each job takes one.
    """
    token = token or uuid4()
    values = {
        "worker": worker,
        "token": token,
        "wanted": wanted,
        "lease_seconds": lease_seconds,
        "served": None if served is None else list(served),
        "at_tenant": cursor.tenant,
        "credit": cursor.credit,
        "host": host,
        "served_pairs": [f"{definition} {tenant}" for definition, tenant in served_pairs] or None,
        "labels": _labels_text(labels),
        "most_slots": most_slots,
        "prefer_seconds": prefer_seconds,
    }
    [(text,)] = await tx.run_quick(sql.claim_with_waits if waits else sql.claim, values)
    return await _open_payloads(tx, text, _read_claim(_document.decode(text), token, cursor))


async def _open_payloads(tx: Tx, text: str | bytes, claim: Claim) -> Claim:
    """Open the sealed values of claimed jobs. A job that cannot be opened says why: its claim has happened."""
    if (_SEALED if isinstance(text, str) else MARK) in text:  # type: ignore[operator]
        await _open_jobs(tx, claim.jobs)
    return claim


async def _open_jobs(tx: Tx, jobs: Iterable[Claimed]) -> None:
    """Open the sealed values of jobs of any tenants, whose keys are fetched at once: the leases run meanwhile."""
    needs = list[tuple[Claimed, set[UUID]]]()
    for job in jobs:
        try:
            if ids := list_key_ids(job.payload):
                needs.append((job, ids))
        except SealBroken as error:
            job.trouble = error
    keys = await sealing.try_keys(tx, set().union(*(ids for _, ids in needs)))
    for job, _ in needs:
        try:
            job.payload = open_values(
                job.payload,
                lambda key_id: sealing.require_key(keys[key_id]),
                tenant_id=job.tenant_id,
                definition=job.definition_key,
                job_id=job.job_id,
            )
        except FairleadError as error:
            job.trouble = error


def _labels_text(labels: Mapping[str, str] | None) -> JsonText:
    return json_text(labels) if labels else _NO_LABELS


def _read_claim(document: _Document, token: UUID, cursor: Cursor) -> Claim:
    tenants = {name: _tenant_name(name, slug) for name, slug in document.tenants.items()}
    for job in document.jobs:
        job.whose = tenants[job.tenant_named]
        job.terms = document.definitions[job.definition_place]
    document.copy_job_values()
    for job in document.jobs if document.probations else ():
        job.probation = (document.probations or {})[job.job_id]
    go_on = Cursor(*document.cursor) if document.cursor else cursor
    of_runs = document.steps or []
    if any(terms.key == ENGINE_RUN for terms in document.definitions):
        of_runs += [job.job_id for job in document.jobs if job.definition_key == ENGINE_RUN]
    return Claim(
        document.jobs,
        token,
        go_on,
        document.busy,
        bool(document.crowded),
        document.opens_in,
        document.again,
        of_runs,
        document.short_of,
    )


def end_unreadable(job: Claimed) -> Change | None:
    """The end of an attempt that cannot begin, because a sealed value cannot be opened; None if the job can begin.

    A missing key charges no attempt: the job waits for a worker that has it. A value that was changed stays changed.
    """
    if job.trouble is None:
        return None
    log.warning(
        "payload_not_opened",
        job_id=str(job.job_id),
        tenant=job.tenant,
        definition=job.definition_key,
        why=job.trouble.message,
    )
    if isinstance(job.trouble, SealBroken):
        return decide(job, Failed("SealBroken", job.trouble.message, retryable=False))
    return decide(job, wait_for_key(job.trouble))


def wait_for_key(error: FairleadError) -> Snoozed:
    """The outcome of an attempt whose worker lacks a key: another worker, or this one later, may have it."""
    # with its code, by which model/why.py knows it
    return Snoozed(UNREADABLE_SECONDS, why=f"{error.code}: {error.message}")


async def claim_suspect(
    tx: Tx,
    *,
    worker: str,
    lease_seconds: float,
    served: Sequence[UUID] | None = None,
    served_pairs: Sequence[tuple[UUID, UUID]] = (),
    idle: bool | None = None,
    waits: bool = False,
    token: UUID | None = None,
    labels: Mapping[str, str] | None = None,
    most_slots: int | None = None,
) -> Claim:
    """Claim one job that has to be started alone, if one is due. `idle`: the worker runs nothing; None: check its leases.

    `labels` are those of the worker, and `most_slots` is how many slots the job may take; None: any number.
    """
    token = token or uuid4()
    values = _suspect_params(worker, token, lease_seconds, served, served_pairs)
    values |= {"idle": idle, "with_waits": waits, "labels": _labels_text(labels), "most_slots": most_slots}
    [(text,)] = await tx.run_quick(sql.claim_suspect, values)
    return await _open_payloads(tx, text, _read_claim(_document.decode(text), token, Cursor()))


async def has_suspect(
    tx: Tx,
    *,
    worker: str,
    lease_seconds: float,
    served: Sequence[UUID] | None = None,
    served_pairs: Sequence[tuple[UUID, UUID]] = (),
    labels: Mapping[str, str] | None = None,
    most_slots: int | None = None,
) -> bool:
    """Whether an idle worker of these definitions would get a suspect."""
    values = _suspect_params(worker, None, lease_seconds, served, served_pairs)
    values |= {"only_look": True, "labels": _labels_text(labels), "most_slots": most_slots}
    [(text,)] = await tx.run_quick(sql.claim_suspect, values)
    return _document.decode(text).waiting


def _suspect_params(
    worker: str,
    token: UUID | None,
    lease_seconds: float,
    served: Sequence[UUID] | None,
    served_pairs: Sequence[tuple[UUID, UUID]],
) -> dict[str, Any]:
    return {
        "worker": worker,
        "token": token,
        "lease_seconds": lease_seconds,
        "served": None if served is None else list(served),
        "served_pairs": [f"{definition} {tenant}" for definition, tenant in served_pairs] or None,
        "idle": None,
        "with_waits": False,
        "only_look": False,
    }


async def read_waiting_weight(
    tx: Tx,
    *,
    served: Sequence[UUID] | None = None,
    served_pairs: Sequence[tuple[UUID, UUID]] = (),
    labels: Mapping[str, str] | None = None,
) -> float:
    """The sum of the weights of the tenants with ready jobs of these definitions, without those at their limit."""
    values = {
        "served": None if served is None else list(served),
        "served_pairs": [f"{definition} {tenant}" for definition, tenant in served_pairs] or None,
        "most": MOST_WEIGHED_PAIRS,
        "labels": _labels_text(labels),
    }
    [[weight]] = await tx.values(sql.waiting_weight, values)
    return float(weight)


class ClaimedLease(NamedTuple):
    """A lease of a claim whose answer was lost: whether its job is a step of a run or waits for one, and whether it is a suspect."""

    lease: Lease
    of_run: bool
    is_suspect: bool


async def list_claimed_leases(tx: Tx, *, worker: str, tokens: Sequence[UUID]) -> list[ClaimedLease]:
    """The leases that a worker's claims with these tokens still hold."""
    values = {"worker": worker, "tokens": list(tokens), "engine_run": ENGINE_RUN}
    rows = await tx.values(sql.of_claims, values)
    return [ClaimedLease(Lease(*lease), of_run, is_suspect) for *lease, of_run, is_suspect in rows]


class HeartbeatResult(NamedTuple):
    """The result of a heartbeat for a lease that still exists: whether it was renewed, and whether a cancel was requested.

    A lease that a finish has locked at that moment is not renewed.
    """

    renewed: bool = True
    cancel: bool = False


async def repeat_claim(tx: Tx, leases: Sequence[Lease]) -> dict[UUID, Claimed]:
    """Return again what a claim returned of the jobs whose leases still exist."""
    found = {}
    for row in await tx.values(sql.again, _lease_columns(leases)):
        job_id, attempt_no, payload, most, failures, losses, parent_id, correlation_id, *about = row
        tenant_id, slug, key, timeout, backoff, secret_paths, run_id, slots = about
        found[job_id] = Claimed(
            job_id,
            attempt_no,
            str(tenant_id),
            0,
            payload,
            most,
            failures,
            losses,
            parent_id,
            correlation_id,
            whose=TenantName(tenant_id, slug),
            terms=AttemptTerms(key, timeout, msgspec.convert(backoff, Backoff), tuple(secret_paths), slots),
            run_id=run_id,
        )
    await _open_jobs(tx, found.values())
    return found


async def heartbeat(tx: Tx, leases: Sequence[Lease], *, lease_seconds: float) -> dict[Lease, HeartbeatResult]:
    """Renew leases. Those that are missing from the result are lost."""
    values = {**_lease_columns(leases), "lease_seconds": lease_seconds}
    return {
        leases[at - 1]: HeartbeatResult(renewed, cancel)
        for at, renewed, cancel in await tx.values(sql.heartbeat, values)
    }


async def finish(tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str) -> dict[UUID, JobStatus]:
    """Write the ends of attempts. Their jobs' statuses, without jobs whose leases were lost.

    Safe to repeat when the answer was lost: a lease that its owner has already ended with the same report is returned
    again, and nothing changes. For steps of runs use `workflow_progress.finish_attempts`.
    """
    done = await end_attempts(tx, ends, actor=actor)
    if len(done) < len(ends):
        done |= await find_ended_before(tx, [one for one in ends if one[0].job_id not in done])
    return done


async def suspend(tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str) -> dict[UUID, JobStatus]:
    """`finish` for attempts of durable functions that wait. A wait that was completed meanwhile wakes its function."""
    waits = [(lease.job_id, place) for lease, change in ends for place in change.waits]
    async with tx.whole():
        await durable.lock_waits(tx, waits)
        done = await finish(tx, ends, actor=actor)
        await durable.wake_completed(tx, waits)
    return done


async def end_attempts(tx: Tx, ends: Sequence[tuple[Lease, Change]], *, actor: str) -> dict[UUID, JobStatus]:
    """Write the ends of attempts. The statuses of the jobs whose leases still existed."""
    plain = [end for end in ends if end[1].is_plain_success]
    done = await _succeed(tx, plain, actor) if plain else {}
    if len(plain) < len(ends):
        done |= await _end(tx, [end for end in ends if not end[1].is_plain_success], actor)
    return done


async def _succeed(tx: Tx, ends: Sequence[tuple[Lease, Change]], actor: str) -> dict[UUID, JobStatus]:
    # an array of our own: psycopg's lists are escaped text, and take a second for many large outputs
    outputs = TextArray(
        None if change.output is None else msgspec.json.encode(change.output) for _, change in ends
    )
    values = {
        **_lease_columns([lease for lease, _ in ends]),
        "outputs": outputs if any(outputs) else None,
        "actor": actor,
    }
    [(_, some, stored_events, released)] = await tx.run_quick(sql.succeed, values)
    if stored_events:
        tx.notify("event")
    if released:
        tx.notify("ready")
    return dict.fromkeys([lease.job_id for lease, _ in ends] if some is None else some, JobStatus.SUCCEEDED)


async def _end(tx: Tx, ends: Sequence[tuple[Lease, Change]], actor: str) -> dict[UUID, JobStatus]:
    failed = any(change.status in FAILURES for _, change in ends)
    query = _FINISH_WITH_FAILURES if failed else sql.finish
    [(text, stored_events, released)] = await tx.run_quick(
        query, {"ends": _encode_ends(ends), "actor": actor}
    )
    if stored_events:
        tx.notify("event")
    if released:
        tx.notify("ready")
    return _statuses.decode(text or "{}") or {}


async def find_ended_before(tx: Tx, ends: Sequence[tuple[Lease, Change]]) -> dict[UUID, JobStatus]:
    """For attempts without a lease: the statuses of those that the same report ended before."""
    if not ends:
        return {}
    [(text,)] = await tx.run_quick(sql.finished_before, {"ends": _encode_ends(ends)})
    return _statuses.decode(text or "{}") or {}


class _End(msgspec.Struct, omit_defaults=True):
    """The end of an attempt, as `finish` reads it; the defaults are a plain success."""

    job_id: UUID
    attempt_no: int
    token: UUID
    status: JobStatus = JobStatus.SUCCEEDED
    attempt_status: str = "succeeded"
    delay: float = 0.0
    charge: int = 0
    loss: int = 0
    suspicion: int = 0
    alone: bool = False
    accused: bool = False
    output: Any = None
    error: Any = None
    message: str | None = None
    cost: int = 0
    log: str | None = None
    ran: Any = None
    waits: bool = False


def _encode_ends(ends: Sequence[tuple[Lease, Change]]) -> JsonText:
    return json_text([_encode_end(lease, change) for lease, change in ends])


def _encode_end(lease: Lease, change: Change) -> _End:
    return _End(
        lease.job_id,
        lease.attempt_no,
        lease.token,
        change.status,
        change.attempt_status,
        float(change.delay),
        change.charge,
        change.loss,
        change.suspicion,
        change.alone,
        change.accused,
        change.output,
        change.error,
        change.message,
        change.cost_cents,
        change.log,
        change.ran,
        bool(change.waits),
    )


class JoinedEnd(StrEnum):
    """What became of an end that was written in a handler's own transaction."""

    # the transaction committed
    ENDED = "ended"
    # it was rolled back, and the lease is still valid
    HELD = "held"
    # it has not ended
    OPEN = "open"
    # the lease was lost
    GONE = "gone"


class _JoinedAnswer(msgspec.Struct):
    """The result of fairlead.finish_joined."""

    done: dict[UUID, JobStatus]
    database: str


_joined_answer = msgspec.json.Decoder(_JoinedAnswer)


def finish_joined(
    ends: Sequence[tuple[Lease, Change]], *, actor: str, database: str | None
) -> Generator[str, str, set[UUID] | None]:
    """An exchange with fairlead.finish_joined, in a handler's own transaction. The jobs that have ended.

    None: the transaction is on another database than `database`.
    """
    request = {"actor": actor, "ends": [_encode_end(lease, change) for lease, change in ends]}
    answer = _joined_answer.decode((yield msgspec.json.encode(request).decode()))
    if len(answer.done) < len(ends) and database is not None and answer.database != database:
        return None
    return set(answer.done)


async def read_joined_end(tx: Tx, lease: Lease) -> JoinedEnd:
    """What became of the end that a handler wrote in its own transaction."""
    [(state,)] = await tx.values(sql.joined_end, msgspec.structs.asdict(lease))
    return JoinedEnd(state)


async def read_identity(tx: Tx) -> str:
    """The identity of the database, to tell whether another connection is on the same one."""
    [(identity,)] = await tx.values(sql.identity)
    return str(identity)


async def store_progress(tx: Tx, steps: Sequence[tuple[Lease, float, str]]) -> set[UUID]:
    """Store the progress of attempts whose leases exist. The ids of their jobs."""
    document = [
        {
            "job_id": lease.job_id,
            "attempt_no": lease.attempt_no,
            "token": lease.token,
            "progress": {"percent": percent, "message": message},
        }
        for lease, percent, message in steps
    ]
    return {job_id for (job_id,) in await tx.values(sql.progress, {"steps": json_text(document)})}


async def stage_due(tx: Tx, *, limit: int = 1000) -> int:
    """Move due jobs from later to ready. Their number."""
    [(moved,)] = await tx.values(sql.stage, {"limit": limit})
    return int(moved)


class Expired(msgspec.Struct, frozen=True):
    """How many expiries are done with, the jobs that were canceled, and how many jobs of their keys became ready."""

    done: int
    canceled: list[UUID]
    released: int


async def expire(tx: Tx, *, limit: int) -> Expired:
    """Cancel jobs that have not started in time."""
    [found] = await tx.all(Expired, sql.expire, {"limit": limit})
    return found


async def seconds_until_due(tx: Tx) -> float | None:
    """Seconds until the next waiting job falls due; None if none waits."""
    return (await look_ahead(tx))[0]


async def look_ahead(tx: Tx) -> tuple[float | None, float | None]:
    """Seconds until the next waiting job falls due, and until the next one expires; None if there is none."""
    [(due, expiry)] = await tx.values(sql.next_due)
    return None if due is None else float(due), None if expiry is None else float(expiry)


def _lease_columns(leases: Sequence[Lease]) -> dict[str, Any]:
    return {
        "jobs": UuidArray([lease.job_id for lease in leases]),
        "attempts": IntegerArray([lease.attempt_no for lease in leases]),
        "tokens": UuidArray([lease.token for lease in leases]),
    }
