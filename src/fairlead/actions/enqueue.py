"""The ways in: one job, many jobs, and jobs inside somebody else's transaction."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx, UniqueViolation
from fairlead.errors import DefinitionInactive, FairleadError, Fault, JobIdTaken, Refused
from fairlead.model.access import Permission, Principal
from fairlead.model.definition import Definition
from fairlead.model.job import Enqueued, NewJob
from fairlead.model.request import checked, unknown_definition, unknown_tenant
from fairlead.store import audit, bulk, definitions, jobs, tenants

MAX_BULK_FAULTS = 20
ROUNDS = 5
CHANGING = "The definition {key!r} keeps changing while jobs are enqueued; try again when it has settled."


async def enqueue(
    tx: Tx, principal: Principal, catalog: Catalog, new: NewJob, *, again: bool = False
) -> Enqueued:
    """Enqueue one job. `again` says that an earlier call with this id may have gone through unseen."""
    principal.require(Permission.WRITE_JOBS)
    checked(new)
    for _ in range(ROUNDS):
        payload, version = catalog.prepare(new)
        try:
            answer = await jobs.enqueue(tx, new, payload=payload, version=version, actor=principal.actor)
        except UniqueViolation as error:
            if again:
                return Enqueued(new.id)
            raise JobIdTaken(
                f"There is a job {new.id} already. Leave the id out and one is made.", [Fault("id", "taken")]
            ) from error
        if answer.job_id is not None:
            return Enqueued(answer.job_id, deduplicated=answer.job_id != new.id)
        _learn_or_refuse(catalog, new, answer.outcome, answer.definition)
    raise Refused(CHANGING.format(key=new.definition))


def joined(
    principal: Principal, catalog: Catalog, requests: Sequence[NewJob]
) -> Generator[str, str, list[Enqueued]]:
    """Enqueue all or none inside the caller's transaction: yields what to send, is sent what came back."""
    principal.require(Permission.WRITE_JOBS)
    if not requests:
        return []
    _check_each(requests)
    for _ in range(ROUNDS):
        prepared = [(new, *catalog.prepare(new)) for new in requests]
        answer = msgspec.json.decode((yield jobs.joined(prepared, actor=principal.actor)))
        for refused in answer.get("refused", ()):
            _learn_or_refuse(catalog, requests[refused["at"]], refused["outcome"], refused["definition"])
        if "enqueued" in answer:
            return [
                Enqueued(UUID(one["job_id"]), deduplicated=one["outcome"] == "deduplicated")
                for one in answer["enqueued"]
            ]
    raise Refused(CHANGING.format(key=requests[0].definition))


def _learn_or_refuse(catalog: Catalog, new: NewJob, outcome: str, definition: Any) -> None:
    if outcome != "definition_changed":
        _refuse(new, outcome)
    catalog.learn(definition["key"], definition["version"], definition["arg_schema"])


def _refuse(new: NewJob, outcome: str) -> NoReturn:
    match outcome:
        case "tenant_unknown":
            raise unknown_tenant(new.tenant)
        case "definition_unknown":
            raise unknown_definition(new.definition)
        case "definition_inactive":
            raise inactive(new.definition)
    raise AssertionError(f"enqueue_one answered {outcome!r}")


def inactive(key: str) -> DefinitionInactive:
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
) -> list[Enqueued]:
    """Enqueue all of them or none. Answers in the order of the requests."""
    principal.require(Permission.WRITE_JOBS)
    if not requests:
        return []
    _check_each(requests)
    found = await definitions.by_keys(tx, {new.definition for new in requests})
    catalog.learn_all(found)
    places = await _places(tx, requests, found)
    answers = await _claim(tx, requests, places)

    def rows() -> Iterator[bulk.Row]:
        for index, new in enumerate(requests):
            if answers[index].id == new.id:
                try:
                    payload, _ = catalog.prepare(new)
                except FairleadError:
                    _explain(catalog, requests, index)
                yield new, payload, places[new.tenant, new.definition]
            if progress is not None and index % 1000 == 0:
                progress(index)

    now = await bulk.moment(tx)
    try:
        counted = await bulk.insert(tx, rows(), now=now, actor=principal.actor)
    except UniqueViolation as error:
        raise JobIdTaken("One of the job ids is taken, or there twice; nothing was enqueued.") from error
    await _audit_bulk(tx, principal, counted, found)
    if progress is not None:
        progress(len(requests))
    return answers


def _check_each(requests: Sequence[NewJob]) -> None:
    for index, new in enumerate(requests):
        try:
            checked(new)
        except FairleadError as error:
            raise _at(index, error) from error


def _explain(catalog: Catalog, requests: Sequence[NewJob], first: int) -> NoReturn:
    """The load is lost at the first bad payload: look through the rest, so that one answer names many."""
    errors: list[FairleadError] = []
    for index in range(first, len(requests)):
        try:
            catalog.prepare(requests[index])
        except FairleadError as error:
            errors.append(_at(index, error))
            if len(errors) == MAX_BULK_FAULTS:
                break
    faults = [fault for error in errors for fault in error.faults][:MAX_BULK_FAULTS]
    raise type(errors[0])(errors[0].message, faults)


def _at(index: int, error: FairleadError) -> FairleadError:
    faults = [
        Fault(f"[{index}]{'.' if path and path[0] != '/' else ''}{path}", why) for path, why in error.faults
    ]
    return type(error)(f"Job {index} of this load: {error.message} Nothing was enqueued.", faults)


async def _places(
    tx: Tx, requests: Sequence[NewJob], found: Mapping[str, Definition]
) -> dict[tuple[str, str], bulk.Place]:
    known = await tenants.ids(tx, {new.tenant for new in requests})
    places: dict[tuple[str, str], bulk.Place] = {}
    for index, new in enumerate(requests):
        if (new.tenant, new.definition) in places:
            continue
        definition = found.get(new.definition)
        if new.tenant not in known:
            raise _at(index, unknown_tenant(new.tenant))
        if definition is None:
            raise _at(index, unknown_definition(new.definition))
        if not definition.is_active:
            raise _at(index, inactive(new.definition))
        places[new.tenant, new.definition] = bulk.Place(
            known[new.tenant], definition.id, definition.default_priority, definition.max_attempts
        )
    return places


async def _claim(
    tx: Tx, requests: Sequence[NewJob], places: Mapping[tuple[str, str], bulk.Place]
) -> list[Enqueued]:
    """Which job stands for each request: itself, or the active one that holds its dedupe key."""
    wanted: dict[bulk.Key, UUID] = {}
    keys: dict[int, bulk.Key] = {}
    for index, new in enumerate(requests):
        if new.dedupe_key is not None:
            key = bulk.key_of(places[new.tenant, new.definition].tenant_id, new.dedupe_key)
            keys[index] = key
            wanted.setdefault(key, new.id)
    holders = await bulk.claim_keys(tx, wanted)
    answers = []
    for index, new in enumerate(requests):
        holder = holders[keys[index]] if index in keys else new.id
        answers.append(Enqueued(holder, deduplicated=holder != new.id))
    return answers


async def _audit_bulk(
    tx: Tx, principal: Principal, counted: Mapping[tuple[UUID, UUID], int], found: Mapping[str, Definition]
) -> None:
    """One row per tenant: a bulk action is not a thousand actions."""
    keys = {definition.id: key for key, definition in found.items()}
    by_tenant: dict[UUID, dict[str, int]] = {}
    for (tenant_id, definition_id), count in counted.items():
        by_tenant.setdefault(tenant_id, {})[keys[definition_id]] = count
    for tenant_id, counts in by_tenant.items():
        await audit.write(
            tx,
            actor=principal.actor,
            action="jobs_created",
            resource_type="job",
            tenant_id=tenant_id,
            details={"count": sum(counts.values()), "definitions": counts},
        )
