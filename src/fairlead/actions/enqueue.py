"""Enqueue one job, many jobs, or jobs inside the caller's own transaction."""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from fairlead import tracing
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import (
    DefinitionInactive,
    DefinitionUnsettled,
    EncryptionKeyMissing,
    FairleadError,
    Fault,
    HostRequired,
    HostUnknown,
    InvalidInput,
    JobIdTaken,
    KeyReserved,
    PayloadInvalid,
    PayloadNotJson,
    PayloadTooDeep,
    PayloadTooLarge,
    ResourceElsewhere,
    ResourceUnknown,
)
from fairlead.keys.keyring import Keyring
from fairlead.keys.sealed import DataKey
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition, Kind
from fairlead.model.flow import KeyStrategy
from fairlead.model.job import EnqueueResult, NewJob, seconds_of
from fairlead.model.payload import encode
from fairlead.model.quota import quota_error_from_database
from fairlead.model.request import check_request, unknown_definition, unknown_tenant
from fairlead.model.template.path import MISSING, look_up, parse_pointer
from fairlead.model.trigger import Trigger
from fairlead.model.workflow.spec import ENGINE_KEYS, ENGINE_RUN
from fairlead.placement import refuse_elsewhere
from fairlead.store import audit, bulk, definitions, jobs, quotas, sealed_runs, sealing, tenants
from fairlead.turns.loop_pauses import LoopPauses

MAX_BULK_FAULTS = 20
# The most bytes of payloads that are checked for further faults, or without a pause.
MOST_EXPLAINED_BYTES = 1_048_576
CHECKED_AT_ONCE = 100
ROUNDS = 5
# Fields of all requests of a load, which `map` reads without a Python call for each.
_DEFINITION = attrgetter("definition")
_OWNER = attrgetter("tenant", "definition")
_ID, _ID_NUMBER = attrgetter("id"), attrgetter("id.int")
_DEDUPE_KEY, _PARENT = attrgetter("dedupe_key"), attrgetter("parent_id")
_HOST, _RESOURCE = attrgetter("host_id"), attrgetter("resource_id")
_DEBOUNCE = attrgetter("debounce")
_ENQUEUE_JOBS = Permission.ENQUEUE_JOBS  # Python looks up a member of an enum by a call
# The refusal of a payload with a secret in plain form, by a database that encrypts.
UNSEALED = EncryptionKeyMissing.code
CHANGING = "The definition {key!r} keeps changing while jobs are enqueued; try again when it has settled."


def enqueue(
    tx: Tx, principal: Principal, catalog: Catalog, new: NewJob, *, again: bool = False, own_key: bool = False
) -> Coroutine[Any, Any, EnqueueResult]:
    """Enqueue one job. `again`: an earlier call with this id may have succeeded without an answer.

    Only with `own_key` may its dedupe key be one that is reserved for the system.
    """
    span = tracing.start_enqueue_span(new.definition, new.tenant)
    if new.definition == ENGINE_RUN:
        return _enqueue_run(span, tx, principal, catalog, new, again=again, own_key=own_key)
    if span is None:
        return _enqueue(tx, principal, catalog, new, again=again, own_key=own_key)
    return _enqueue_in_span(span, tx, principal, catalog, new, again=again, own_key=own_key)


async def _enqueue_run(
    span: tracing.EnqueueSpan | None,
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    new: NewJob,
    *,
    again: bool,
    own_key: bool,
) -> EnqueueResult:
    """Enqueue a job that runs a workflow, and hide the secrets of the input that it has for the run."""
    if span is None:
        made = await _enqueue(tx, principal, catalog, new, again=again, own_key=own_key)
    else:
        made = await _enqueue_in_span(span, tx, principal, catalog, new, again=again, own_key=own_key)
    await _hide_inputs(tx, [new], [made])
    return made


async def _hide_inputs(tx: Tx, requests: Sequence[NewJob], made: Sequence[EnqueueResult]) -> None:
    """Mark what becomes secrets of the inputs of runs as secrets of the jobs that start them, and seal it."""
    runs = [(new, one) for new, one in zip(requests, made, strict=True) if new.definition == ENGINE_RUN]
    known = await tenants.get_ids(tx, {new.tenant for new, _ in runs})
    for new, one in runs:
        if one.deduplicated and new.debounce is None:
            continue
        payload, _ = encode(new.payload)
        paths = await sealed_runs.find_secret_inputs(tx, payload, tenant_id=known[new.tenant])
        if paths:
            await jobs.add_secret_paths(tx, one.id, paths)


async def _enqueue_in_span(
    span: tracing.EnqueueSpan,
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    new: NewJob,
    *,
    again: bool,
    own_key: bool,
) -> EnqueueResult:
    with span:
        made = await _enqueue(tx, principal, catalog, new, again=again, own_key=own_key, trace=span.carried)
        span.set_job_id(made.id, deduplicated=made.deduplicated)
    return made


async def _enqueue(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    new: NewJob,
    *,
    again: bool,
    own_key: bool = False,
    trace: str | None = None,
) -> EnqueueResult:
    check_single(principal, new, own_key=own_key)
    if new.delay is not None:
        new = new.resolve_delay(await bulk.read_clock(tx))
    current: set[str] = set()
    for _ in range(ROUNDS):
        payload, version = catalog.prepare(new, current)
        if paths := catalog.find_secret_paths(new.definition):
            payload = await sealing.seal_payload(tx, new, payload, paths)
        known = catalog.ids(new) if new.plain and trace is None else None
        try:
            if known and await jobs.enqueue_plain(
                tx, new, *known, payload=payload, version=version, actor=principal.actor
            ):
                return EnqueueResult(new.id)
            answer = await jobs.enqueue(
                tx, new, payload=payload, version=version, actor=principal.actor, trace=trace
            )
        except UniqueViolation as error:
            if again:
                return EnqueueResult(new.id)
            raise id_taken_error(new.id) from error
        if answer.job_id is not None and answer.tenant_id is not None and answer.definition_id is not None:
            catalog.learn_ids(new, answer.tenant_id, answer.definition_id)
            return EnqueueResult(answer.job_id, deduplicated=answer.job_id != new.id)
        if answer.quota is not None:
            raise quota_error_from_database(answer.quota)
        if answer.outcome == UNSEALED and not tx.keyring.is_known_on:
            tx.keyring.note_state(is_on=True)  # the next round seals
            continue
        current.add(_learn_or_refuse(catalog, new, answer.outcome, answer.definition))
    raise DefinitionUnsettled(CHANGING.format(key=new.definition))


def check_single(principal: Principal, new: NewJob, *, own_key: bool = False) -> None:
    """Require the right to enqueue this job, and check the request, but not its payload."""
    _require_rights(principal, (new,))
    check_request(new, own_key=own_key)


def _require_rights(principal: Principal, requests: Sequence[NewJob]) -> None:
    """Require the permission to enqueue; a principal of a tenant gets `tenant unknown` for any other tenant."""
    principal.require(_ENQUEUE_JOBS, principal.tenant_id)
    if principal.definitions is not None:
        for new in requests:
            principal.require_definition(new.definition)
    # compared, not hashed: nothing has checked yet that they are texts
    keys = list(map(_DEFINITION, requests))
    if any(key in keys for key in ENGINE_KEYS):
        # the job starts its run, or reads events, with the application's rights, not with those of its enqueuer
        principal.require(Permission.START_WORKFLOWS, principal.tenant_id)
    if principal.tenant_id is not None:
        for new in requests:
            if new.tenant != str(principal.tenant_id):
                raise unknown_tenant(new.tenant)


class KeysNeeded(Exception):
    """The keys of these tenants have to be loaded before their jobs can be enqueued. Nothing was sent."""

    def __init__(self, tenants: Collection[str]) -> None:
        super().__init__()
        self.tenants = tenants


async def load_keys(tx: Tx, tenants: Collection[str]) -> None:
    """Load what `enqueue_joined` needs to know about the keys of tenants."""
    if await sealing.is_on(tx):
        for tenant in tenants:
            await sealing.find_current_key(tx, tenant)


def enqueue_joined(
    principal: Principal, catalog: Catalog, requests: Sequence[NewJob], keyring: Keyring
) -> Generator[str, str, list[EnqueueResult]]:
    """Enqueue all or none inside the caller's transaction: yields the text to send, and is sent the answer.

    Raises KeysNeeded if it has to seal secrets and does not have the keys.
    """
    span = _start_span(requests)
    if span is None:
        return (yield from _enqueue_joined(principal, catalog, requests, keyring))
    with span:
        return (yield from _enqueue_joined(principal, catalog, requests, keyring, trace=span.carried))


def _seal_joined(
    catalog: Catalog, requests: Sequence[NewJob], index: int, payload: bytes, keyring: Keyring
) -> bytes:
    new = requests[index]
    paths = catalog.find_secret_paths(new.definition)
    if not paths or keyring.is_known_off:
        return payload
    key = keyring.find_current(new.tenant) if keyring.is_known_on else None
    if key is None:
        raise KeysNeeded({new.tenant for new in requests if catalog.find_secret_paths(new.definition)})
    return _seal_at(key, requests, index, payload, paths)


def _start_span(requests: Sequence[NewJob]) -> tracing.EnqueueSpan | None:
    if len(requests) == 1:
        return tracing.start_enqueue_span(requests[0].definition, requests[0].tenant)
    return tracing.start_bulk_enqueue_span(new.definition for new in requests) if requests else None


def _enqueue_joined(
    principal: Principal,
    catalog: Catalog,
    requests: Sequence[NewJob],
    keyring: Keyring,
    *,
    trace: str | None = None,
) -> Generator[str, str, list[EnqueueResult]]:
    _require_rights(principal, requests)
    if not requests:
        return []
    _check_each(requests)
    current: set[str] = set()
    for _ in range(ROUNDS):
        prepared = []
        for index, new in enumerate(requests):
            payload, version = _prepare_at(catalog, requests, index, current)
            prepared.append((new, _seal_joined(catalog, requests, index, payload, keyring), version))
        document = jobs.encode_joined(prepared, actor=principal.actor, trace=trace, quotas=catalog.quotas)
        answer = msgspec.json.decode((yield document))
        for refused in answer.get("refused", ()):
            if "quota" in refused:
                raise quota_error_from_database(refused["quota"], more=len(requests))
            index = refused["at"]
            if refused["outcome"] == UNSEALED and not keyring.is_known_on:
                keyring.note_state(is_on=True)  # the next round seals
                break
            try:
                current.add(
                    _learn_or_refuse(catalog, requests[index], refused["outcome"], refused["definition"])
                )
            except FairleadError as error:
                _raise_at(index, error, requests)
        if "enqueued" in answer:
            return [
                EnqueueResult(UUID(one["job_id"]), deduplicated=one["outcome"] == "deduplicated")
                for one in answer["enqueued"]
            ]
    raise DefinitionUnsettled(CHANGING.format(key=requests[0].definition))


def _prepare_at(
    catalog: Catalog, requests: Sequence[NewJob], index: int, current: Collection[str]
) -> tuple[bytes, int]:
    try:
        return catalog.prepare(requests[index], current)
    except FairleadError as error:
        _raise_at(index, error, requests)


def _learn_or_refuse(catalog: Catalog, new: NewJob, outcome: str, definition: Any) -> str:
    """Cache the changed definition and return its key, or raise the refusal."""
    if outcome != "definition_changed":
        raise_refusal(new, outcome, catalog.find_resource(new))
    catalog.learn(
        definition["key"], definition["version"], definition["arg_schema"], definition["resource_pointer"]
    )
    return str(definition["key"])


def raise_refusal(new: NewJob, outcome: str, resource: tuple[str, str] | None = None) -> NoReturn:
    """Raise the error for a refusal of the database; `resource` is the path and name of the request's resource."""
    refuse_elsewhere(new.tenant, outcome)
    match outcome:
        case "tenant_unknown":
            raise unknown_tenant(new.tenant)
        case "definition_unknown":
            raise unknown_definition(new.definition)
        case "definition_inactive":
            raise inactive_error(new.definition)
        case "job_id_taken":
            raise id_taken_error(new.id)
        case "encryption_key_missing":
            raise EncryptionKeyMissing(
                f"This database encrypts secrets, and a secret field of {new.definition} was not sealed: set encryption_key in "
                "fairlead.toml or FAIRLEAD_ENCRYPTION_KEY to the same source as everywhere else, and open this Fairlead."
            )
        case "host_unknown":
            raise HostUnknown(f"There is no host {new.host_id}.", [Fault("host_id", "unknown")])
        case "host_required":
            raise HostRequired(
                f"A job of {new.definition} is for a host: name one with host_id, or a resource with resource_id.",
                [Fault("host_id", "is required")],
            )
        case "resource_unknown":
            where, name = resource or ("resource_id", "of this name")
            raise ResourceUnknown(
                f"There is no resource {name[:200]!r}, or there are several of this name. Register it with "
                "`fairlead resources add NAME --host HOST --kind KIND`, or name one of several by its id.",
                [Fault(where, "unknown")],
            )
        case "resource_elsewhere":
            raise ResourceElsewhere(
                "The resource is on another host than host_id. Leave host_id out.",
                [Fault("host_id", "not where the resource is")],
            )
    refusals: dict[str, type[FairleadError]] = {
        one.code: one
        for one in (
            InvalidInput,
            KeyReserved,
            PayloadInvalid,
            PayloadNotJson,
            PayloadTooDeep,
            PayloadTooLarge,
        )
    }
    raise refusals[outcome](f"The database refused this job: {outcome}.", [Fault("", outcome)])


def id_taken_error(job_id: UUID) -> JobIdTaken:
    return JobIdTaken(
        f"There is a job {job_id} already. Leave the id out to get a new one.", [Fault("id", "taken")]
    )


def inactive_error(key: str) -> DefinitionInactive:
    return DefinitionInactive(
        f"The definition {key!r} is not active. Activate it with: fairlead definitions put {key} --active",
        [Fault("definition", "not active")],
    )


async def enqueue_many(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    requests: Sequence[NewJob],
    *,
    progress: Callable[[int], None] | None = None,
) -> list[EnqueueResult]:
    """Enqueue all of them or none. The results are in the order of the requests."""
    span = _start_span(requests)
    if span is None:
        made = await _enqueue_many(tx, principal, catalog, requests, progress)
    else:
        with span:
            made = await _enqueue_many(tx, principal, catalog, requests, progress, trace=span.carried)
    if ENGINE_RUN in map(_DEFINITION, requests):
        await _hide_inputs(tx, requests, made)
    return made


async def _enqueue_many(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    requests: Sequence[NewJob],
    progress: Callable[[int], None] | None,
    *,
    trace: str | None = None,
) -> list[EnqueueResult]:
    _require_rights(principal, requests)
    if not requests:
        return []
    await _check_in_slices(requests)
    found = await definitions.get_by_keys(tx, set(map(_DEFINITION, requests)))
    catalog.learn_all(found)
    if _has_singles(requests, found):
        return await _enqueue_with_singles(
            tx, principal, catalog, requests, progress, found=found, trace=trace
        )
    places = await _build_targets(tx, requests, found)
    # most loads have one target
    one = next(iter(places.values())) if len(places) == 1 else None
    targets = [one] * len(requests) if one else [places[owner] for owner in map(_OWNER, requests)]
    answers = await _claim_keys(tx, requests, places)
    roots = await _require_room(tx, requests, answers, targets)

    def rows() -> Iterator[bulk.Row]:
        for index, (new, answer, target) in enumerate(zip(requests, answers, targets, strict=True)):
            if not answer.deduplicated:
                payload = _prepare_in_load(catalog, requests, index, found)
                if keys:
                    payload = _seal_in_load(keys, catalog, requests, index, payload)
                timed = new if new.delay is None else new.resolve_delay(now)
                yield timed, payload, target
            if progress is not None and index % 1000 == 0:
                progress(index)

    keys = await _load_keys(tx, catalog, places)
    now = await bulk.read_clock(tx)
    try:
        await bulk.insert_jobs(tx, rows(), places.values(), now=now, actor=principal.actor, trace=trace)
    except UniqueViolation as error:
        raise JobIdTaken(
            "One of the job ids is taken. Nothing was enqueued.", [Fault("id", "taken")]
        ) from error
    await quotas.assign_root_runs(tx, roots)
    await _audit_bulk(tx, principal, places)
    if progress is not None:
        progress(len(requests))
    return answers


async def _load_keys(tx: Tx, catalog: Catalog, owners: Collection[tuple[str, str]]) -> dict[str, DataKey]:
    """The keys of the tenants whose jobs have secrets; none if the database does not encrypt."""
    names = {tenant for tenant, key in owners if catalog.find_secret_paths(key)}
    if not names or not await sealing.is_on(tx):
        return {}
    return {tenant: await sealing.find_current_key(tx, tenant) for tenant in names}


def _prepare_in_load(
    catalog: Catalog, requests: Sequence[NewJob], index: int, current: Collection[str]
) -> bytes:
    try:
        return catalog.prepare(requests[index], current)[0]
    except FairleadError:
        _raise_faults(catalog, requests, index, current)


def _seal_in_load(
    keys: Mapping[str, DataKey], catalog: Catalog, requests: Sequence[NewJob], index: int, payload: bytes
) -> bytes:
    new = requests[index]
    paths = catalog.find_secret_paths(new.definition)
    return _seal_at(keys[new.tenant], requests, index, payload, paths) if paths else payload


def _seal_at(
    key: DataKey, requests: Sequence[NewJob], index: int, payload: bytes, paths: Sequence[str]
) -> bytes:
    try:
        return sealing.seal_prepared(key, requests[index], payload, paths)
    except FairleadError as error:
        _raise_at(index, error, requests)


async def _require_room(
    tx: Tx,
    requests: Sequence[NewJob],
    answers: Sequence[EnqueueResult],
    targets: Sequence[bulk.LoadTarget],
) -> dict[UUID, UUID]:
    """Refuse a load that exceeds the quotas. The root runs of its jobs."""
    kept = [not answer.deduplicated for answer in answers]
    tenants_jobs: Counter[UUID] = Counter()
    for target, number in Counter(compress(targets, kept)).items():
        tenants_jobs[target.tenant_id] += number
    made = list(compress(requests, kept))
    parents = {parent for parent in map(_PARENT, made) if parent is not None}
    roots_of = await quotas.find_root_runs(tx, parents) if parents else {}
    roots = {new.id: roots_of[new.parent_id] for new in made if new.parent_id in roots_of} if roots_of else {}
    runs_jobs = Counter(roots.values())
    for where, told in (await quotas.find_refusals(tx, tenants=tenants_jobs, runs=runs_jobs)).items():
        raise quota_error_from_database(told, more=tenants_jobs[where] or runs_jobs[where])
    return roots


def _has_singles(requests: Sequence[NewJob], found: Mapping[str, Definition]) -> bool:
    """Whether a load has jobs that are enqueued one by one."""
    if any(map(_HOST, requests)) or any(map(_RESOURCE, requests)) or any(map(_DEBOUNCE, requests)):
        return True
    # most loads have few definitions and thousands of jobs
    bound = {key for key, definition in found.items() if _is_bound(definition)}
    return bool(bound) and not bound.isdisjoint(map(_DEFINITION, requests))


def _is_bound(definition: Definition) -> bool:
    """Whether the database decides about each job of the definition: by its host, or by the other jobs of its key."""
    return (
        bool(definition.resource_pointer)
        or definition.kind is Kind.HOST
        or _find_strategic_pointer(definition) is not None
    )


def _find_strategic_pointer(definition: Definition) -> str | None:
    """Where payloads have the key, if an enqueue acts on the other jobs of its key."""
    by_key = definition.by_key
    return None if by_key is None or by_key.strategy is KeyStrategy.QUEUE else by_key.pointer


def _is_single(new: NewJob, found: Mapping[str, Definition]) -> bool:
    """Whether a job may be for a host, is debounced, or acts on other jobs of its key, which the database decides one by one."""
    definition = found.get(new.definition)
    return bool(
        new.host_id or new.resource_id or new.debounce or (definition is not None and _is_bound(definition))
    )


def encode_limited_value(new: NewJob, pointer: str | None, payload: Any) -> str | None:
    """The value of the key, alone in a JSON array, if the job acts on the other jobs of its key: `pointer` is its place."""
    if pointer is None or new.debounce is not None:
        return None
    value = look_up(parse_pointer(pointer), payload)
    return None if value is MISSING else msgspec.json.encode([value]).decode()


def lock_order(
    new: NewJob, target: bulk.LoadTarget | Trigger, limit_key: UUID | None
) -> tuple[int, *tuple[bytes, ...]]:
    """The order of enqueue_joined, so that two loads cannot deadlock: dedupe keys, then limit keys, then debounced keys."""
    if new.debounce is not None:
        tenant_id, key_hash = bulk.key_of(target.tenant_id, f"{target.definition_id} {new.debounce.key}")
        return (2, tenant_id.bytes, key_hash)
    if limit_key is not None:
        return (1, target.tenant_id.bytes, target.definition_id.bytes, limit_key.bytes)
    if new.dedupe_key is not None:
        tenant_id, key_hash = bulk.key_of(target.tenant_id, new.dedupe_key)
        return (0, tenant_id.bytes, key_hash)
    return (0,)


async def _enqueue_with_singles(
    tx: Tx,
    principal: Principal,
    catalog: Catalog,
    requests: Sequence[NewJob],
    progress: Callable[[int], None] | None,
    *,
    found: Mapping[str, Definition],
    trace: str | None,
) -> list[EnqueueResult]:
    """Enqueue all or none of a load with jobs that the database decides one by one; the others together."""
    prepared = 0
    places = await _build_targets(tx, requests, found)  # raises with the index in the whole load
    values: dict[int, str] = {}
    for index, new in enumerate(requests):
        payload = _prepare_in_load(catalog, requests, index, found)
        pointer = _find_strategic_pointer(found[new.definition])
        value = None if pointer is None else encode_limited_value(new, pointer, msgspec.json.decode(payload))
        if value is not None:
            values[index] = value
        if (prepared := prepared + len(payload)) > MOST_EXPLAINED_BYTES:
            await bulk.read_clock(tx)  # yields to the event loop, and keeps the transaction from being idle
            prepared = 0
    singles = {index for index, new in enumerate(requests) if _is_single(new, found)}
    others = [new for index, new in enumerate(requests) if index not in singles]
    answers = dict(
        zip(
            (index for index in range(len(requests)) if index not in singles),
            await _enqueue_many(tx, principal, catalog, others, None, trace=trace),
            strict=True,
        )
    )
    limit_keys = dict(zip(values, await bulk.find_limit_keys(tx, list(values.values())), strict=True))
    order = {
        index: lock_order(requests[index], places[_OWNER(requests[index])], limit_keys.get(index))
        for index in singles
    }
    for index in sorted(singles, key=lambda index: (order[index], index)):
        try:
            answers[index] = await _enqueue(tx, principal, catalog, requests[index], again=False, trace=trace)
        except FairleadError as error:
            _raise_at(index, error, requests)
    if progress is not None:
        progress(len(requests))
    return [answers[index] for index in range(len(requests))]


async def _check_in_slices(requests: Sequence[NewJob]) -> None:
    """The same as `_check_each`, with pauses for other tasks."""
    pauses = LoopPauses()
    for at in range(0, len(requests), CHECKED_AT_ONCE):
        _check_some(requests, at, at + CHECKED_AT_ONCE)
        await pauses.pause_if_due()
    _check_ids(requests)


def _check_each(requests: Sequence[NewJob]) -> None:
    _check_some(requests, 0, len(requests))
    _check_ids(requests)


def _check_some(requests: Sequence[NewJob], first: int, end: int) -> None:
    index = first
    try:
        for index, new in enumerate(requests[first:end], first):  # noqa: B007 - the index of the refused job
            check_request(new)
    except FairleadError as error:
        _raise_at(index, error, requests)


def _check_ids(requests: Sequence[NewJob]) -> None:
    if len(set(map(_ID_NUMBER, requests))) != len(requests):
        raise JobIdTaken(
            "Two of the jobs have the same id. Nothing was enqueued.", [Fault("id", "duplicate")]
        )


def _raise_faults(
    catalog: Catalog, requests: Sequence[NewJob], first: int, current: Collection[str]
) -> NoReturn:
    """Raise the faults of a load: after the first bad payload, check up to a megabyte more to report several."""
    errors: list[FairleadError] = []
    size = 0
    for index in range(first, len(requests)):
        try:
            size += len(catalog.prepare(requests[index], current)[0])
            if size > MOST_EXPLAINED_BYTES:
                break
        except FairleadError as error:
            errors.append(_error_at(index, error) if len(requests) > 1 else error)
            if len(errors) == MAX_BULK_FAULTS:
                break
    faults = [fault for error in errors for fault in error.faults][:MAX_BULK_FAULTS]
    raise type(errors[0])(errors[0].message, faults)


def _raise_at(index: int, error: FairleadError, requests: Sequence[NewJob]) -> NoReturn:
    """Raise the error with its index in the load; for a load of one, the error itself."""
    if len(requests) == 1:
        raise error
    raise _error_at(index, error) from error


def _error_at(index: int, error: FairleadError) -> FairleadError:
    faults = [
        Fault(f"[{index}]{'.' if path and path[0] != '/' else ''}{path}", why) for path, why in error.faults
    ]
    return type(error)(f"Job {index} of this load: {error.message} Nothing was enqueued.", faults)


async def _build_targets(
    tx: Tx, requests: Sequence[NewJob], found: Mapping[str, Definition]
) -> dict[tuple[str, str], bulk.LoadTarget]:
    known = await tenants.get_ids(tx, {new.tenant for new in requests})
    places: dict[tuple[str, str], bulk.LoadTarget] = {}
    for owner in dict.fromkeys(map(_OWNER, requests)):
        tenant, key = owner
        definition = found.get(key)
        if tenant not in known:
            _raise_at(_first_index(requests, owner), unknown_tenant(tenant), requests)
        if definition is None or not definition.is_for(known[tenant]):
            _raise_at(_first_index(requests, owner), unknown_definition(key), requests)
        if not definition.is_active:
            _raise_at(_first_index(requests, owner), inactive_error(key), requests)
        places[owner] = bulk.LoadTarget(
            known[tenant], definition.id, definition.default_priority, definition.max_attempts
        )
    return places


def _first_index(requests: Sequence[NewJob], owner: tuple[str, str]) -> int:
    return next(index for index, new in enumerate(requests) if _OWNER(new) == owner)


async def _claim_keys(
    tx: Tx, requests: Sequence[NewJob], places: Mapping[tuple[str, str], bulk.LoadTarget]
) -> list[EnqueueResult]:
    """The job of each request: a new one, or the active one that holds its dedupe key."""
    if not any(map(_DEDUPE_KEY, requests)):
        return list(map(EnqueueResult, map(_ID, requests)))
    wanted: dict[bulk.Key, UUID] = {}
    keys: dict[int, bulk.Key] = {}
    unique_for: dict[bulk.Key, float] = {}
    pauses = LoopPauses()
    for index, new in enumerate(requests):
        if index % CHECKED_AT_ONCE == 0:
            await pauses.pause_if_due()
        if new.dedupe_key is not None:
            key = bulk.key_of(places[new.tenant, new.definition].tenant_id, new.dedupe_key)
            keys[index] = key
            if wanted.setdefault(key, new.id) == new.id and new.unique_for is not None:
                unique_for[key] = seconds_of(new.unique_for)
    holders = await bulk.claim_keys(tx, wanted, unique_for=unique_for)
    answers = []
    for index, new in enumerate(requests):
        if index % CHECKED_AT_ONCE == 0:
            await pauses.pause_if_due()
        holder = holders[keys[index]] if index in keys else new.id
        answers.append(EnqueueResult(holder, holder != new.id))
    return answers


async def _audit_bulk(
    tx: Tx, principal: Principal, places: Mapping[tuple[str, str], bulk.LoadTarget]
) -> None:
    """Write one entry per tenant instead of one per job."""
    by_tenant: dict[UUID, Counter[str]] = {}
    for (_, key), place in places.items():
        if place.count:
            by_tenant.setdefault(place.tenant_id, Counter())[key] += place.count
    for tenant_id, counts in by_tenant.items():
        await audit.write(
            tx,
            actor=principal.actor,
            action="jobs_created",
            resource_type="job",
            tenant_id=tenant_id,
            details={"count": sum(counts.values()), "definitions": counts},
        )
