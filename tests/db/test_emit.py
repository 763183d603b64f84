"""Events inside somebody else's transaction: any driver, any role with EXECUTE, plain SQL."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import conninfo
from psycopg.rows import TupleRow

from fairlead.actions import events, triggers
from fairlead.actions.dispatch import dispatch
from fairlead.db.database import Database
from fairlead.errors import EventInvalid, TenantUnknown
from tests import drivers, given
from tests.given import OTHER, TENANT, TESTER
from tests.tables import each_case

EMIT = "fairlead.emit(text, text, jsonb, text, timestamptz)"
Connection = psycopg.Connection[TupleRow]


async def kept(db: Database) -> list[Any]:
    async with db.transaction() as tx:
        return await events.list_events(tx, TESTER)


@pytest.mark.parametrize("driver", drivers.DRIVERS)
async def test_an_event_is_there_when_the_callers_transaction_is(db: Database, driver: str) -> None:
    """And it makes its jobs then; with what was rolled back, the event is gone."""
    trigger = await given.trigger(db, payload_template={"n": "{{event.n}}"})
    async with drivers.caller(driver, db.url) as caller:
        await caller.emit(given.EVENT, tenant=TENANT, data={"n": 0})
        await caller.rollback()
        event_id = await caller.emit(given.EVENT, tenant=TENANT, data={"n": 1}, correlation_id="trace")
        assert await kept(db) == []
        await caller.commit()

    [event] = await kept(db)
    assert (event.id, event.data, event.correlation_id) == (event_id, {"n": 1}, "trace")
    assert (event.created_by, event.tenant) == ("shop", TENANT)
    async with db.transaction() as tx:
        assert await dispatch(tx, given.catalog(), limit=10) == 1
        [firing] = await triggers.list_firings(tx, TESTER, trigger.id)
    assert firing.event_id == event_id


@pytest.mark.parametrize("driver", ["psycopg-connection", "asyncpg-connection", "django-connection"])
async def test_a_refused_event_leaves_the_callers_transaction_whole(db: Database, driver: str) -> None:
    async with drivers.caller(driver, db.url) as caller:
        with pytest.raises(TenantUnknown):
            await caller.emit(given.EVENT, tenant="nobody")
        with pytest.raises(EventInvalid):
            await caller.emit("not a name", tenant=TENANT)
        await caller.emit(given.EVENT, tenant=OTHER)
        await caller.commit()

    [event] = await kept(db)
    assert event.tenant == OTHER


# Plain SQL


@pytest.fixture
def plain(database_url: str) -> Iterator[Connection]:
    """A role that may do nothing but emit."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("create role emitter login")
        owner.execute("grant usage on schema fairlead to emitter")
        owner.execute(f"grant execute on function {EMIT} to emitter".encode())
        with psycopg.connect(conninfo.make_conninfo(database_url, user="emitter")) as connection:
            yield connection
            connection.rollback()
        owner.execute("drop owned by emitter")
        owner.execute("drop role emitter")


async def test_a_role_with_execute_and_nothing_else_emits(db: Database, plain: Connection) -> None:
    [event_id] = (
        plain.execute("select fairlead.emit('acme', 'folder.updated', '{\"n\": 1}')").fetchone() or ()
    )
    plain.commit()

    [event] = await kept(db)
    assert (event.id, event.created_by, event.data) == (event_id, "emitter", {"n": 1})
    [entry] = await given.audit_entries(db, resource_type="event")
    assert (entry.actor, entry.action) == ("emitter", "event_emitted")
    for table in ("events", "events_waiting", "job_triggers", "trigger_firings", "dedupe_windows"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            plain.execute(f"select from fairlead.{table}".encode())
        plain.rollback()


@each_case(
    ("arguments", "why"),
    [
        ("'nobody', 'folder.updated'", "tenant_unknown"),
        ("'acme', 'not a name'", "event_invalid"),
        ("'acme', null", "event_invalid"),
        ("'acme', 'job.failed'", "event_reserved"),
        ("'acme', 'a', '[1]'", "payload_invalid"),
        ("'acme', 'a', null", "payload_invalid"),
        ("'acme', 'a', jsonb_build_object('x', repeat('x', 262144))", "payload_too_large"),
        ("'acme', 'a', '{}', ''", "invalid_input"),
        ("'acme', 'a', '{}', null, '1900-01-01'", "invalid_input"),
    ],
)
def test_what_cannot_be_an_event_is_refused_with_its_code(
    plain: Connection, arguments: str, why: str
) -> None:
    plain.rollback()  # the refusal before
    with pytest.raises(psycopg.Error) as refusal:
        plain.execute(f"select fairlead.emit({arguments})".encode())
    assert (refusal.value.sqlstate, refusal.value.diag.message_detail) == ("FL001", why)
