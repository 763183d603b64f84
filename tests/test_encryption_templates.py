"""Literal secrets in templates of triggers, schedules and workflows: sealed in the database, plain only for a job."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlead import Context, Fairlead, Secret, Settings
from fairlead.actions import backfill, encryption, preview, triggers, workflows
from fairlead.actions.dispatch import dispatch
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import EncryptionKeyMissing, SecretsRequired, TemplateInvalid, WorkflowInvalid
from fairlead.model.access import Principal, Role
from fairlead.model.trigger import FiringOutcome
from fairlead.model.workflow.run import RunStatus
from fairlead.store import tenants
from tests import given
from tests.acting import act
from tests.databases import find_in_database
from tests.encrypted_app import App, app, enable, key, own, reseal, rotate
from tests.given import OTHER, TENANT, TESTER

pytestmark = pytest.mark.thorough

__all__ = ["app", "key", "own"]

LITERAL = "whsec-0123456789-canary"
RESEALS = [partial(encryption.reseal_documents, documents=one) for one in encryption.DOCUMENTS]


def build(settings: Settings, *, every: bool = False) -> tuple[Fairlead, list[Any]]:
    """An application with a function that gets a secret, and what it got."""
    fl, seen = Fairlead(settings=settings), list[Any]()

    async def pay(ctx: Context, token: Annotated[str, Secret()], note: str = "") -> str:
        seen.append((token, note))
        return "paid"

    if every:
        fl.every(3600, tenant=TENANT, key="pay", name="hourly", payload={"token": LITERAL})(pay)
    else:
        fl.job(key="pay")(pay)
    return fl, seen


def read_column(url: str, query: str, *values: Any) -> Any:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute(query.encode(), values).fetchall()]


NIGHTLY = {
    "label": "n",
    "trigger_type": "schedule",
    "cron_expr": "0 2 * * *",
    "definition_key": "pay",
    "overlap": "allow",
}


async def test_a_trigger_has_its_secret_sealed_and_its_jobs_get_it(app: App, database_url: str) -> None:
    fl, seen = app
    template = {"token": f"{LITERAL} {{{{event.id}}}}", "note": "{{event.code}}"}
    async with fl.database.transaction() as tx:
        trigger = await given.trigger(
            tx, definition_key="pay", payload_template=template, filter={"id": "A7-secret-event"}
        )
        await given.event(tx, data={"id": "A7-secret-event", "code": "x"})
        await given.event(tx, data={"id": "another-one", "code": "y"})
        shown = await triggers.get(tx, TESTER, trigger.id)
    await fl.tick()

    [stored] = read_column(database_url, "select payload_template from fairlead.job_triggers")
    assert stored["token"].keys() == {"$sealed", "$fields"}
    assert stored["token"]["$fields"] == ["{{event.id}}"]
    assert stored["note"] == "{{event.code}}"
    # the trigger compares a field of the event that becomes a secret
    [filtered] = read_column(database_url, "select filter from fairlead.job_triggers")
    assert filtered["id"].keys() == {"$sealed"}
    assert shown.payload_template == {"token": "[redacted]", "note": "{{event.code}}"}
    assert shown.filter == {"id": "[redacted]"}
    assert seen == [(f"{LITERAL} A7-secret-event", "x")]
    assert find_in_database(database_url, LITERAL) == []


async def test_schedules_fire_by_hand_backfill_and_preview_with_their_secret(
    app: App, database_url: str
) -> None:
    fl, seen = app
    async with fl.database.transaction() as tx:
        saved = await triggers.create(tx, TESTER, TENANT, {**NIGHTLY, "payload_template": {"token": LITERAL}})
        trigger_id = saved.trigger.id
        fired = await triggers.fire_now(tx, TESTER, given.catalog(), trigger_id)
        wanted = preview.PreviewRequest(trigger_id=trigger_id)
        shown = await preview.preview_trigger(tx, TESTER, given.catalog(), wanted)
        since, until = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 3, tzinfo=UTC)
        made = await backfill.backfill(tx, TESTER, given.catalog(), trigger_id, since=since, until=until)

    assert saved.warnings == []
    assert saved.trigger.payload_template == {"token": "[redacted]"}
    assert fired.outcome is FiringOutcome.ENQUEUED
    assert (shown.valid, shown.payload) == (True, {"token": "[redacted]"})
    assert made.enqueued == 2
    assert find_in_database(database_url, LITERAL) == []
    await fl.tick()
    assert seen == [(LITERAL, "")] * 3


async def test_a_change_keeps_the_secret_and_seals_a_new_one(app: App, database_url: str) -> None:
    fl, seen = app
    async with fl.database.transaction() as tx:
        saved = await triggers.create(tx, TESTER, TENANT, {**NIGHTLY, "payload_template": {"token": LITERAL}})
        trigger_id, shown = saved.trigger.id, saved.trigger.payload_template
        await triggers.change(tx, TESTER, trigger_id, {"label": "m", "payload_template": shown})
        with pytest.raises(SecretsRequired):
            await triggers.change(
                tx, TESTER, trigger_id, {"payload_template": {**shown, "note": "to another server"}}
            )
        await triggers.fire_now(tx, TESTER, given.catalog(), trigger_id)
        await triggers.change(tx, TESTER, trigger_id, {"payload_template": {"token": f"{LITERAL}-2"}})
        await triggers.fire_now(tx, TESTER, given.catalog(), trigger_id)
    assert find_in_database(database_url, LITERAL) == []
    await fl.tick()

    assert [token for token, _ in seen] == [LITERAL, f"{LITERAL}-2"]


async def test_a_schedule_of_the_code_is_sealed_and_unchanged_when_the_process_starts_again(
    own: Settings, settings: Settings, database_url: str
) -> None:
    first, _ = build(own)
    async with first:
        await enable(first)
    for _ in range(2):
        fl, seen = build(own, every=True)
        async with fl:
            await fl.sync_schedules()

    assert read_column(
        database_url, "select payload_template -> 'token' ? '$sealed' from fairlead.job_triggers"
    ) == [True]
    changes = "select action from fairlead.audit_entries where resource_type = 'trigger'"
    assert read_column(database_url, changes) == ["trigger_created"]
    assert find_in_database(database_url, LITERAL) == []
    async with fl:
        [trigger] = await fl.sync_schedules()
        await act(fl.database, triggers.fire_now, TESTER, given.catalog(), trigger.id)
        await fl.tick()
    assert seen == [(LITERAL, "")]
    without, _ = build(settings, every=True)
    with pytest.raises(EncryptionKeyMissing):
        async with without:
            await without.sync_schedules()


async def test_a_sealed_literal_that_was_moved_fails_only_its_own_trigger(
    app: App, database_url: str
) -> None:
    fl, seen = app
    async with fl.database.transaction() as tx:
        made = [
            await given.trigger(
                tx, label=str(n), definition_key="pay", payload_template={"token": f"{LITERAL}-{n}"}
            )
            for n in range(2)
        ]
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "update fairlead.job_triggers set payload_template = ("
            "select payload_template from fairlead.job_triggers where id = %s) where id = %s",
            [made[0].id, made[1].id],
        )
    async with fl.database.transaction() as tx:
        await given.event(tx)
        await dispatch(tx, given.catalog(), limit=10)
        firings = [(await triggers.list_firings(tx, TESTER, one.id))[0] for one in made]
        shown = await triggers.get(tx, TESTER, made[1].id)
    await fl.tick()

    assert [one.outcome for one in firings] == [FiringOutcome.ENQUEUED, FiringOutcome.FAILED]
    assert firings[1].reason == "seal_broken"
    assert shown.payload_template == {"token": "[redacted]"}
    assert seen == [(f"{LITERAL}-0", "")]


async def test_documents_that_pretend_to_be_sealed_are_refused(app: App, database_url: str) -> None:
    fl, _ = app
    await given.trigger(fl.database, definition_key="pay", payload_template={"token": LITERAL})
    [stored] = read_column(database_url, "select payload_template from fairlead.job_triggers")

    async with fl.database.transaction() as tx:
        with pytest.raises(TemplateInvalid, match="only Fairlead seals"):
            await triggers.create(tx, TESTER, TENANT, {**NIGHTLY, "payload_template": stored})
        with pytest.raises(WorkflowInvalid, match="only Fairlead seals"):
            await workflows.publish(tx, TESTER, TENANT, document(stored))


def document(payload: Any, **more: Any) -> dict[str, Any]:
    return {"key": "billing", "steps": [{"name": "pay", "definition": "pay", "payload": payload, **more}]}


async def run(fl: Fairlead, tenant: str = TENANT, **more: Any) -> UUID:
    """Start a run and wait for its end."""
    started = await fl.start("billing", tenant=tenant, **more)
    for _ in range(5):
        await fl.tick()
    return started.id


@pytest.mark.parametrize("publisher", [TENANT, "global"])
async def test_a_workflow_has_its_secrets_sealed_and_its_jobs_get_them(
    app: App, database_url: str, publisher: str
) -> None:
    fl, seen = app
    steps = document(
        {"token": "{{item.token}}", "note": "{{input.note}}"},
        for_each=[{"token": LITERAL}, {"token": f"{LITERAL}-{{{{input.note}}}}"}],
    )
    async with fl.database.transaction() as tx:
        made, _ = await workflows.publish(tx, TESTER, publisher, steps)
        _, is_new = await workflows.publish(tx, TESTER, publisher, steps)
        shown = await workflows.get(tx, TESTER, TENANT, "billing")
        _, is_new_as_shown = await workflows.publish(tx, TESTER, publisher, shown.spec)
    tenant_id = (await fl.database.transact(lambda tx: tenants.get_ids(tx, [TENANT])))[TENANT]
    operator = Principal("operator", Role.OPERATOR, tenant_id)
    fl.database.keyring._keys.clear()  # row-level security lets the run read the key of a shared workflow
    asked = workflows.RunRequest(tenant=str(tenant_id), input={"note": "n1"})
    async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
        started = await workflows.start(tx, operator, "billing", asked)
    await fl.tick()
    async with fl.database.transaction(TransactionIdentity(tenant_id)) as tx:
        details = await workflows.show_run(tx, operator, started.id)

    assert (is_new, is_new_as_shown) == (False, False)
    assert LITERAL not in str((made, shown, details))
    assert shown.spec["steps"][0]["for_each"] == [{"token": "[redacted]"}] * 2
    assert details.steps[0].spec["for_each"] == [{"token": "[redacted]"}] * 2
    assert sorted(seen) == [(LITERAL, "n1"), (f"{LITERAL}-n1", "n1")]
    assert details.run.status is RunStatus.SUCCEEDED
    sealed_by = (
        "select distinct k.tenant_id from fairlead.workflow_steps s join fairlead.tenant_keys k "
        "on strpos(s.spec::text, replace(k.id::text, '-', '')) > 0"
    )
    assert read_column(database_url, sealed_by) == [tenant_id]  # a move takes this key along
    assert find_in_database(database_url, LITERAL) == []


async def test_inline_runs_have_their_secrets_sealed(app: App, database_url: str) -> None:
    fl, seen = app
    started = await fl.chain(("pay", {"token": LITERAL}), ("pay", {"token": f"{LITERAL}-2"}), tenant=OTHER)
    assert find_in_database(database_url, LITERAL) == []
    for _ in range(3):
        await fl.tick()

    assert [token for token, _ in seen] == [LITERAL, f"{LITERAL}-2"]
    assert (await started.read()).run.status is RunStatus.SUCCEEDED
    assert find_in_database(database_url, LITERAL) == []


async def test_a_step_whose_sealed_literal_was_changed_fails(app: App, database_url: str) -> None:
    fl, seen = app
    await act(fl.database, workflows.publish, TESTER, TENANT, document({"token": LITERAL}))
    with psycopg.connect(database_url) as connection:
        sealed = {"$sealed": f"sealed:1:{UUID(int=7).hex}:{'A' * 60}"}
        connection.execute(
            "update fairlead.workflows set spec = jsonb_set(spec, '{steps,0,payload,token}', %s)",
            [Jsonb(sealed)],
        )
    run_id = await run(fl)

    found = await act(fl.database, workflows.get_run, TESTER, run_id)
    assert found.status is RunStatus.FAILED
    assert found.error["code"] == "seal_broken"
    assert seen == []


async def test_documents_from_before_encryption_are_sealed_and_rotated(
    own: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fl, seen = build(own)
    async with fl:
        async with fl.database.transaction() as tx:
            saved = await triggers.create(
                tx, TESTER, TENANT, {**NIGHTLY, "payload_template": {"token": LITERAL}}
            )
            await workflows.publish(tx, TESTER, TENANT, document({"token": LITERAL}))
        later = await fl.start("billing", tenant=TENANT)
        found = {"job_triggers", "workflows", "workflow_steps", "job_records"}
        assert set(find_in_database(database_url, LITERAL)) == found
        await enable(fl)

        assert [await reseal(fl, *RESEALS) for _ in range(2)] == [3, 0]
        assert find_in_database(database_url, LITERAL) == ["job_records"]  # which `reseal_jobs` seals
        assert await reseal(fl, encryption.reseal_jobs) == 1

        async def reseal_all() -> int:
            await reseal(fl, encryption.reseal_jobs)
            _, used = await fl.database.transact(lambda tx: encryption.retire_keys(tx, TESTER))
            assert used == 1  # by the documents
            return await reseal(fl, *RESEALS)

        assert await rotate(fl, monkeypatch, reseal_all) == 3

        await act(fl.database, triggers.fire_now, TESTER, given.catalog(), saved.trigger.id)
        await run(fl)
        assert (await later.read()).run.status is RunStatus.SUCCEEDED
    assert seen == [(LITERAL, "")] * 3
    assert find_in_database(database_url, LITERAL) == []
