"""Bulk enqueue: claims dedupe keys in order, then inserts by COPY, in the caller's transaction."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlead.db import binary_copy
from fairlead.db.arrays import BytesArray, UuidArray
from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx
from fairlead.model.field import type_of
from fairlead.model.job import NewJob, Source, seconds_of

sql = queries_beside(__file__)

_ENCODERS: dict[Any, Callable[[Any], bytes]] = {
    str: binary_copy.text,
    Source: binary_copy.text,
    UUID: binary_copy.uuid,
    int: binary_copy.int4,
    datetime: binary_copy.timestamptz,
}
# Fields of a request that are not stored as they are. Jobs for hosts are not loaded in bulk.
_OTHERS = {"id", "definition", "tenant", "payload", "delay", "scheduled_for", "priority", "max_attempts"}
_OTHERS |= {"host_id", "resource_id", "tags", "timeout", "expires_in", "unique_for", "debounce"}
_STORED = [
    (field.name, _ENCODERS[type_of(field)])
    for field in msgspec.structs.fields(NewJob)
    if field.name not in _OTHERS
]


class _LoadTable(NamedTuple):
    """A table and the columns that a load fills, in the order of its rows."""

    table: str
    columns: tuple[str, ...]

    def write(self, statement: str) -> str:
        return statement.replace("<table>", self.table).replace("<columns>", ", ".join(self.columns))

    def start_row(self) -> bytes:
        return binary_copy.start_row(len(self.columns))


_OWNER = ("tenant_id", "definition_id", "priority")
_OPTIONS = tuple(name for name, _ in _STORED)
_TIMES = ("scheduled_for", "queued_at")
_JOBS = _LoadTable(
    "job_records", ("id", *_OWNER, "max_attempts", *_TIMES, *_OPTIONS, "created_by", "payload")
)
_TRACED_JOBS = _JOBS._replace(columns=(*_JOBS.columns, "trace"))
# Columns of the few jobs that have tags, a timeout or an expiry.
_RARE = ("tags", "timeout_seconds", "expires_at")
_TAGS = _LoadTable("job_tags", ("tenant_id", "tag", "job_id"))
_EXPIRIES = _LoadTable("expiries", ("expires_at", "job_id", "tenant_id"))
_READY = _LoadTable("ready", ("job_id", *_OWNER, "scheduled_for"))
_LATER = _LoadTable("later", ("job_id", *_OWNER, "due_at"))
_HOT = _READY.start_row() + binary_copy.UUID_LENGTH


class LoadTarget(msgspec.Struct, eq=False):
    """A tenant and definition of a load: the defaults of its jobs, and their number."""

    tenant_id: UUID
    definition_id: UUID
    priority: int
    max_attempts: int
    count: int = 0
    plain: tuple[bytes, bytes] | None = None  # the common columns of its jobs without options, as COPY bytes


# Dedupe keys that one statement claims.
KEYS_AT_ONCE = 500

Key = tuple[UUID, bytes]
Row = tuple[NewJob, bytes, LoadTarget]


def key_of(tenant_id: UUID, dedupe_key: str) -> Key:
    """A dedupe key as active_keys stores it."""
    return tenant_id, hashlib.sha256(dedupe_key.encode()).digest()


async def read_clock(tx: Tx) -> datetime:
    """The database's clock."""
    [(now,)] = await tx.values(sql.moment)
    return now  # type: ignore[no-any-return]


async def notify(tx: Tx, what: str) -> None:
    """Wake the processes that wait for this, after this transaction has committed."""
    tx.notify(what)


async def claim_keys(
    tx: Tx, wanted: dict[Key, UUID], *, unique_for: Mapping[Key, float] | None = None
) -> dict[Key, UUID]:
    """Claim dedupe keys, some for a time. The job that holds each key: the wanted one, or one that was active before."""
    holders: dict[Key, UUID] = {}
    # in pieces, since a statement with thousands of values takes long to build; and in one order, so that two loads
    # cannot deadlock
    ordered = sorted(wanted, key=lambda key: (key[0].int, key[1]))
    for at in range(0, len(ordered), KEYS_AT_ONCE):
        piece = {key: wanted[key] for key in ordered[at : at + KEYS_AT_ONCE]}
        holders |= await _claim_piece(tx, piece, unique_for or {})
    if any(holders[key] != job for key, job in wanted.items()):
        await tx.wait_for_standby()
    return holders


async def _claim_piece(tx: Tx, wanted: Mapping[Key, UUID], times: Mapping[Key, float]) -> dict[Key, UUID]:
    holders: dict[Key, UUID] = {}
    while left := {key: job for key, job in wanted.items() if key not in holders}:
        keys = {"tenants": UuidArray(key[0] for key in left), "hashes": BytesArray(key[1] for key in left)}
        won = await tx.values(
            sql.claim_keys,
            {
                **keys,
                "jobs": UuidArray(left.values()),
                "unique_for": [times.get(key) for key in left],
            },
        )
        mine = {job for (job,) in won}
        holders |= {key: job for key, job in left.items() if job in mine}
        # a holder that ended in between frees its key, and the next round claims it
        found = await tx.values(sql.holders, keys)
        over = {(tenant, bytes(digest)) for tenant, digest, _, is_over in found if is_over}
        freed = await _free_keys(tx, over - holders.keys()) if over else set()
        known = {(tenant, bytes(digest)): job for tenant, digest, job, _ in found}
        holders |= {key: job for key, job in known.items() if key not in freed}
    return holders


async def _free_keys(tx: Tx, keys: set[Key]) -> set[Key]:
    """Free those of the keys, whose times are over, that no active job holds. Which are free now."""
    values = {"tenants": [key[0] for key in keys], "hashes": [key[1] for key in keys]}
    found = await tx.values(sql.free_keys, values)
    return {(tenant, bytes(digest)) for tenant, digest, is_free in found if is_free}


async def find_limit_keys(tx: Tx, values: Sequence[str]) -> list[UUID]:
    """The key of each value, as limits by key store it. The values are JSON, each alone in an array."""
    return [key for (key,) in await tx.values(sql.limit_keys, {"values": values})] if values else []


async def find_key_holder(tx: Tx, key: Key) -> UUID | None:
    """The active job that holds this dedupe key."""
    tenant_id, digest = key
    found = await tx.values(sql.holders, {"tenants": [tenant_id], "hashes": [digest]})
    return found[0][2] if found else None


async def insert_jobs(
    tx: Tx,
    rows: Iterable[Row],
    places: Iterable[LoadTarget],
    *,
    now: datetime,
    actor: str,
    trace: str | None = None,
) -> None:
    """Insert the jobs, put each in ready or later, and add them to the counts."""
    load, places = _Load(now, actor, trace), list(places)
    definitions = list({place.definition_id for place in places})
    [(bound, keyed)] = await tx.values(sql.bound, {"definitions": definitions})
    with_key: list[UUID] = []
    copied = _copy_through_table if bound else _copy_rows
    if keyed:
        rows = _note_ids(rows, frozenset(keyed), with_key)
    await copied(tx, load.jobs, load.records(rows))
    for rare, records in ((load.rare_jobs, load.rare), (_TAGS, load.tags), (_EXPIRIES, load.expiries)):
        if records:
            await copied(tx, rare, records)
    for target, hot in ((_READY, load.ready), (_LATER, load.later)):
        if hot:
            await copied(tx, target, hot)
            await notify(tx, target.table)
    if with_key:
        await tx.run(sql.set_keys, {"ids": with_key})
    await _count_jobs(tx, [place for place in places if place.count], now)


def _note_ids(rows: Iterable[Row], definitions: frozenset[UUID], ids: list[UUID]) -> Iterator[Row]:
    """The same rows; the ids of the jobs of these definitions are added to `ids`."""
    for row in rows:
        if row[2].definition_id in definitions:
            ids.append(row[0].id)
        yield row


async def _copy_rows(tx: Tx, target: _LoadTable, records: Iterable[bytes], statement: str = sql.copy) -> None:
    async with tx.copy(target.write(statement)) as copy:
        await binary_copy.send_rows(copy, records)


async def _copy_through_table(tx: Tx, target: _LoadTable, records: Iterable[bytes]) -> None:
    """Copy into a temporary table and insert from there: COPY does not work under row-level security."""
    await tx.run(target.write(sql.stage))
    await _copy_rows(tx, target, records, sql.copy_staged)
    await tx.run(target.write(sql.move_staged))
    await tx.run(sql.unstage)


class _Load:
    """One bulk load: encodes requests as COPY rows, and the queue rows as ready or later."""

    def __init__(self, now: datetime, actor: str, trace: str | None) -> None:
        self._now = now
        self._actor = binary_copy.text(actor)
        self._queued_at = binary_copy.timestamptz(now)
        self.jobs = _JOBS if trace is None else _TRACED_JOBS
        # one more column, only in a traced load
        self._end = b"" if trace is None else binary_copy.text(trace)
        self.ready: list[bytes] = []
        self.later: list[bytes] = []
        # the jobs with rare options, and the rows of these
        self.rare_jobs = self.jobs._replace(columns=(*self.jobs.columns, *_RARE))
        self.rare: list[bytes] = []
        self.tags: list[bytes] = []
        self.expiries: list[bytes] = []

    def records(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """The rows of jobs without rare options; adds the others to `rare`, and the queue rows to `ready` and `later`."""
        begin, end = self.jobs.start_row() + binary_copy.UUID_LENGTH, self._end
        add_ready, start_jsonb = self.ready.append, binary_copy.start_jsonb
        for new, payload, place in rows:
            place.count += 1
            key = new.id.int.to_bytes(16, "big")  # UUID.bytes takes twice as long
            if new.plain:
                job, hot = place.plain or self._encode_plain(new, place)
                add_ready(_HOT + key + hot)
            else:
                job, hot = self._encode_columns(new, place)
                (self.later if self._waits(new) else self.ready).append(_HOT + key + hot)
                if new.tags or new.timeout is not None or new.expires_in is not None:
                    rest = (job, start_jsonb(len(payload)), payload, end, self._encode_rare(new, place))
                    self.rare.append(b"".join((self.rare_jobs.start_row(), binary_copy.uuid(new.id), *rest)))
                    yield b""  # nothing to send, and a pause may be due
                    continue
            yield b"".join((begin, key, job, start_jsonb(len(payload)), payload, end))

    def _encode_rare(self, new: NewJob, place: LoadTarget) -> bytes:
        """The columns of the rare options; adds the rows of its tags and its expiry."""
        tenant, job = binary_copy.uuid(place.tenant_id), binary_copy.uuid(new.id)
        for tag in new.tags or ():
            self.tags.append(_TAGS.start_row() + tenant + binary_copy.text(tag) + job)
        at = binary_copy.NULL
        if new.expires_in is not None:
            due = max(new.scheduled_for or self._now, self._now)
            at = binary_copy.timestamptz(due + timedelta(seconds=seconds_of(new.expires_in)))
            self.expiries.append(_EXPIRIES.start_row() + at + job + tenant)
        return binary_copy.text_array(new.tags or None) + binary_copy.int4(new.timeout_seconds) + at

    def _waits(self, new: NewJob) -> bool:
        return new.scheduled_for is not None and new.scheduled_for > self._now

    def _encode_plain(self, new: NewJob, place: LoadTarget) -> tuple[bytes, bytes]:
        """All columns but id and payload: the same bytes for all plain jobs of one place."""
        place.plain = self._encode_columns(new, place)
        return place.plain

    def _encode_columns(self, new: NewJob, place: LoadTarget) -> tuple[bytes, bytes]:
        priority = place.priority if new.priority is None else new.priority
        owner = (
            binary_copy.uuid(place.tenant_id)
            + binary_copy.uuid(place.definition_id)
            + binary_copy.int4(priority)
        )
        due = self._queued_at if new.scheduled_for is None else binary_copy.timestamptz(new.scheduled_for)
        job = (
            owner,
            binary_copy.int4(place.max_attempts if new.max_attempts is None else new.max_attempts),
            due,
            self._queued_at,
            *[encode(getattr(new, name)) for name, encode in _STORED],
            self._actor,
        )
        # a time in the past does not move it ahead in the queue, nor count as waiting time
        return b"".join(job), owner + (due if self._waits(new) else self._queued_at)


async def _count_jobs(tx: Tx, places: Sequence[LoadTarget], now: datetime) -> None:
    values = {
        "tenants": [place.tenant_id for place in places],
        "definitions": [place.definition_id for place in places],
        "queued": [place.count for place in places],
        "moment": now,
    }
    await tx.run(sql.count_queued, values)
