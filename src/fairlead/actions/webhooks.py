"""Outgoing webhooks: triggers that tell a URL how jobs end. Made, listed, removed; all else is as with any trigger."""

from collections.abc import Sequence
from uuid import UUID

from fairlead.actions import triggers
from fairlead.db.tx import Tx
from fairlead.errors import DefinitionUnknown, Fault, TriggerInvalid, TriggerUnknown
from fairlead.model.access import Principal
from fairlead.model.http_call import KEY, target_of
from fairlead.model.job_event import JOB_EVENTS, call_template, ends_of
from fairlead.model.path import Flaw
from fairlead.model.trigger import Trigger, TriggerType


async def add(
    tx: Tx,
    principal: Principal,
    tenant: str,
    *,
    url: str,
    events: Sequence[str],
    definitions: Sequence[str] = (),
    sign_with: str | None = None,
) -> list[Trigger]:
    """Have a URL told of these ends of a tenant's jobs, of some definitions or (none named) of all: a trigger for each."""
    host = _host(url)
    document = {
        "label": f"Webhook to {host}"[:200],
        "trigger_type": TriggerType.EVENT,
        "definition_key": KEY,
        "filter": ends_of(definitions),
        "payload_template": call_template(url, sign_with=sign_with),
        # each end is one of its own
        "dedupe_window_seconds": 0,
    }
    try:
        return [
            (await triggers.create(tx, principal, tenant, {**document, "event_name": event})).trigger
            for event in dict.fromkeys(events)
        ]
    except DefinitionUnknown as error:
        raise DefinitionUnknown(
            f"Webhooks are jobs of {KEY}, and no worker has offered it yet: set http_requests = true in its "
            "fairlead.toml and start it once.",
            error.faults,
        ) from None


async def listed(tx: Tx, principal: Principal, *, tenant: str | None = None) -> list[Trigger]:
    """Webhooks, newest first."""
    found = [
        one
        for event in JOB_EVENTS
        for one in await triggers.listed(
            tx, principal, tenant=tenant, limit=triggers.MAX_PAGE, event_name=event, definition_key=KEY
        )
    ]
    return sorted(found, key=lambda one: one.id, reverse=True)


async def remove(tx: Tx, principal: Principal, webhook_id: UUID) -> Trigger:
    """Take a webhook away; what it has under way is still sent."""
    if not _is_webhook(await triggers.get(tx, principal, webhook_id)):
        raise TriggerUnknown(
            f"Trigger {webhook_id} is not a webhook. To remove it: fairlead triggers remove {webhook_id}",
            [Fault("id", "not a webhook")],
        )
    return await triggers.remove(tx, principal, webhook_id)


def _is_webhook(trigger: Trigger) -> bool:
    return trigger.definition_key == KEY and trigger.event_name in JOB_EVENTS


def _host(url: str) -> str:
    try:
        return target_of(url).host
    except Flaw as flaw:
        raise TriggerInvalid(f"The url {flaw.message}.", [Fault("url", flaw.message)]) from None
