"""Read the audit log."""

import base64
import binascii
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.job import Job
from fairlead.model.page import Page as Rows
from fairlead.model.page import invalid_cursor
from fairlead.model.payload import find_storage_flaw
from fairlead.store import audit
from fairlead.store.audit import AuditFilter, AuditPosition, Entry, StoredEntry

__all__ = [
    "MAX_PAGE",
    "AuditFilter",
    "AuditPage",
    "AuditPosition",
    "Entry",
    "StoredEntry",
    "list_entries",
    "list_entries_about_job",
]

MAX_PAGE = 1000
# The entries that a search looks at for one page.
LOOK = 50_000
# For all tenants, each tenant's newest entries are read: first of a short range, since most readers want recent entries.
_RANGES = (timedelta(hours=1), timedelta(days=1), timedelta(days=30))

# An entry's time is read from the clock separately from the job's own time.
_AFTER = timedelta(seconds=5)


class AuditPage(msgspec.Struct, frozen=True):
    items: list[StoredEntry]
    next_cursor: str | None


async def list_entries(
    tx: Tx, principal: Principal, wanted: AuditFilter, *, limit: int = 50, cursor: str | None = None
) -> AuditPage:
    """A page of the audit log, newest first: of the principal's tenant, or of all.

    It looks at LOOK entries at most: a page can have fewer entries than `limit`, even none, and still have a next cursor.
    """
    principal.require(Permission.READ_AUDIT, principal.tenant_id)
    _check(wanted, limit)
    place = None if cursor is None else decode_cursor(cursor)
    horizon = await _find_horizon(tx, principal, wanted, place)
    if horizon is not None:
        wanted = replace(wanted, after=horizon)
    if principal.tenant_id is None:
        found = await _list_all(tx, wanted, place=place, limit=limit)
    else:
        found = await audit.list_entries(tx, wanted, tenant_id=principal.tenant_id, place=place, limit=limit)
    end = None if horizon is None else AuditPosition.before_all_of(horizon)
    last = end if found.last is None else found.last.place
    return AuditPage(found, None if last is None else _encode_cursor(last))


async def _find_horizon(
    tx: Tx, principal: Principal, wanted: AuditFilter, place: AuditPosition | None
) -> datetime | None:
    """The time at which a search ends for this page, if it has to end before its filter says."""
    if not wanted.is_selective:
        return None
    until = min((one for one in (wanted.before, place and place.at) if one is not None), default=None)
    found = await audit.find_horizon(tx, tenant_id=principal.tenant_id, until=until, look=LOOK)
    # if LOOK entries have one time, the search must read past them, or it would never go on
    if found is None or found == until:
        return None
    return found if wanted.after is None or wanted.after < found else None


async def list_entries_about_job(tx: Tx, principal: Principal, job: Job) -> list[Entry]:
    """The entries about a job, the newest first; in a busy tenant some from the middle may be missing."""
    principal.require(Permission.READ_AUDIT, job.tenant_id)
    until = None if job.finished_at is None else job.finished_at + _AFTER
    return await audit.list_entries_about(
        tx, "job", job.id, tenant_id=job.tenant_id, since=job.queued_at - _AFTER, until=until
    )


async def _list_all(
    tx: Tx, wanted: AuditFilter, *, place: AuditPosition | None, limit: int
) -> Rows[StoredEntry]:
    newest = min(
        moment for moment in (datetime.now(UTC), wanted.before, place and place.at) if moment is not None
    )
    for span in _RANGES:
        since = newest - span
        if wanted.after is not None and wanted.after >= since:
            break
        found = await audit.list_entries(
            tx, replace(wanted, after=since), tenant_id=None, place=place, limit=limit
        )
        if found.more:
            return found
    return await audit.list_entries(tx, wanted, tenant_id=None, place=place, limit=limit)


def _check(wanted: AuditFilter, limit: int) -> None:
    faults = [] if 1 <= limit <= MAX_PAGE else [Fault("limit", f"use 1 to {MAX_PAGE}")]
    texts = {
        name: getattr(wanted, name)
        for name in ("actor", "action", "actor_part", "text", "resource_type", "resource_id")
    }
    faults += [Fault(name, why) for name, text in texts.items() if text and (why := find_storage_flaw(text))]
    moments = {"after": wanted.after, "before": wanted.before}
    faults += [
        Fault(name, "must be a time with its zone, in the years 1970 to 2999")
        for name, moment in moments.items()
        if moment is not None and not _is_valid_time(moment)
    ]
    if faults:
        raise InvalidInput(f"{faults[0].path}: {faults[0].message}.", faults)


def _is_valid_time(moment: datetime) -> bool:
    return moment.tzinfo is not None and 1970 <= moment.year <= 2999


def encode_place(entry: StoredEntry) -> str:
    """The cursor of the entries after this one."""
    return _encode_cursor(entry.place)


def _encode_cursor(place: AuditPosition) -> str:
    """A position as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode_cursor(cursor: str) -> AuditPosition:
    """The position that a cursor names, in its cell."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        place = msgspec.json.decode(text, type=AuditPosition)
        block, _, line = place.spot.strip("()").partition(",")
        fits = (
            _is_valid_time(place.at)
            and 0 <= place.part < 2**32
            and 0 <= int(block) < 2**32
            and 0 <= int(line) < 2**16
            and 0 <= place.n < 2**31
        )
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        fits = False
    if not fits:
        raise invalid_cursor()
    return place._replace(spot=f"({int(block)},{int(line)})")
