"""Add, list and remove outgoing webhooks: triggers that call a URL at the end of jobs and runs."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from fairlead.actions import enqueue, jobs, triggers
from fairlead.actions.catalog import Catalog
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionUnknown, Fault, JobUnknown, TriggerInvalid, TriggerUnknown
from fairlead.model.access import Permission, Principal
from fairlead.model.end_event import (
    END_EVENTS,
    JOB_EVENTS,
    RUN_EVENTS,
    build_end_filter,
    build_webhook_template,
)
from fairlead.model.job import EnqueueResult, Job, NewJob
from fairlead.model.messages.http_call import KEY, parse_target
from fairlead.model.template.path import Flaw
from fairlead.model.trigger import Firing, Trigger, TriggerType

MOST_SHOWN = 200


class Delivery(msgspec.Struct, frozen=True):
    """A firing of a webhook, and the job that calls the URL; None if there is none, or retention removed it."""

    firing: Firing
    job: Job | None


async def add(
    tx: Tx,
    principal: Principal,
    tenant: str,
    *,
    url: str,
    events: Sequence[str],
    definitions: Sequence[str] = (),
    workflows: Sequence[str] = (),
    sign_with: str | None = None,
) -> list[Trigger]:
    """Add a webhook: a trigger for each of these events of a tenant's jobs and runs.

    It is limited to jobs of these definitions and runs of these workflows; without any, it covers all.
    """
    host = _parse_host(url)
    _check_limits(events, definitions, workflows)
    document = {
        "label": f"Webhook to {host}"[:200],
        "trigger_type": TriggerType.EVENT,
        "definition_key": KEY,
        "payload_template": build_webhook_template(url, sign_with=sign_with),
        # every end is sent
        "dedupe_window_seconds": 0,
    }

    def limit(event: str) -> dict[str, Any]:
        return {
            "event_name": event,
            "filter": build_end_filter(event, definitions=definitions, workflows=workflows),
        }

    try:
        return [
            (await triggers.create(tx, principal, tenant, {**document, **limit(event)})).trigger
            for event in dict.fromkeys(events)
        ]
    except DefinitionUnknown as error:
        raise DefinitionUnknown(
            f"Webhooks are jobs of {KEY}, and no worker has offered it yet: set http_requests = true in its "
            "fairlead.toml and start it once.",
            error.faults,
        ) from None


def _check_limits(events: Sequence[str], definitions: Sequence[str], workflows: Sequence[str]) -> None:
    """Refuse a limit that applies to none of the events."""
    for name, given, told in (("definition", definitions, JOB_EVENTS), ("workflow", workflows, RUN_EVENTS)):
        if given and not set(events) & set(told):
            raise TriggerInvalid(
                f"A {name} is given, but none of the events is about a {name}. Leave it out, or add one of: {', '.join(told)}.",
                [Fault(f"{name}s", "limits none of the events")],
            )


async def list_webhooks(tx: Tx, principal: Principal, *, tenant: str | None = None) -> list[Trigger]:
    """Webhooks, newest first."""
    found = [
        one
        for event in END_EVENTS
        for one in await triggers.list_all(tx, principal, tenant=tenant, event_name=event, definition_key=KEY)
    ]
    return sorted(found, key=lambda one: one.id, reverse=True)


async def list_newest(tx: Tx, principal: Principal) -> list[Trigger]:
    """The newest webhooks, at most MOST_SHOWN."""
    found = [
        one
        for event in END_EVENTS
        for one in await triggers.list_triggers(
            tx, principal, event_name=event, definition_key=KEY, limit=MOST_SHOWN
        )
    ]
    return sorted(found, key=lambda one: one.id, reverse=True)[:MOST_SHOWN]


async def get(tx: Tx, principal: Principal, webhook_id: UUID) -> Trigger:
    """A webhook; refuses any other trigger."""
    found = await triggers.get(tx, principal, webhook_id)
    if not _is_webhook(found):
        raise TriggerUnknown(
            f"Trigger {webhook_id} is not a webhook. To remove it: fairlead triggers remove {webhook_id}",
            [Fault("id", "not a webhook")],
        )
    return found


async def remove(tx: Tx, principal: Principal, webhook_id: UUID) -> Trigger:
    """Remove a webhook; its enqueued calls are still sent."""
    await get(tx, principal, webhook_id)
    return await triggers.remove(tx, principal, webhook_id)


async def set_enabled(tx: Tx, principal: Principal, webhook_id: UUID, *, enabled: bool) -> Trigger:
    """Pause or resume a webhook; events that end meanwhile are not sent later."""
    await get(tx, principal, webhook_id)
    return (await triggers.change(tx, principal, webhook_id, {"is_enabled": enabled})).trigger


async def list_deliveries(tx: Tx, principal: Principal, webhook_id: UUID, *, limit: int) -> list[Delivery]:
    """The newest deliveries of a webhook."""
    fired = await triggers.list_firings(tx, principal, webhook_id, limit=limit)
    return [Delivery(one, await _find_job(tx, principal, one.job_id)) for one in fired]


async def _find_job(tx: Tx, principal: Principal, job_id: UUID | None) -> Job | None:
    try:
        return None if job_id is None else (await jobs.show_job(tx, principal, job_id))[0]
    except JobUnknown:
        return None


async def send_test(tx: Tx, principal: Principal, catalog: Catalog, webhook_id: UUID) -> EnqueueResult:
    """Enqueue a request like those of the webhook, with `"test": true` as its data."""
    principal.require(Permission.MANAGE_TRIGGERS, principal.tenant_id)
    shown = await get(tx, principal, webhook_id)
    template = (await triggers.get_unmasked(tx, principal, webhook_id)).payload_template
    if not isinstance(template, dict) or "{{" in str(template.get("url", "{{")):
        raise TriggerInvalid("The URL of this webhook depends on the event: replay an event instead.", [])
    now = await triggers.read_clock(tx)
    body = {"type": shown.event_name, "timestamp": now.isoformat(), "data": {"test": True}}
    payload = {**template, "webhook_id": str(uuid7()), "body": body}
    new = NewJob(definition=KEY, tenant=str(shown.tenant_id), payload=payload)
    return await enqueue.enqueue(tx, principal, catalog, new)


def _is_webhook(trigger: Trigger) -> bool:
    return trigger.definition_key == KEY and trigger.event_name in END_EVENTS


def _parse_host(url: str) -> str:
    try:
        return parse_target(url).host
    except Flaw as flaw:
        raise TriggerInvalid(f"The url {flaw.message}.", [Fault("url", flaw.message)]) from None
