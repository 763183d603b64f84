"""Literal secrets in templates and filters of triggers: sealed as they are stored, if the database encrypts."""

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import SealBroken
from fairlead.model.template.sealed import seal_literals
from fairlead.model.template.secrets import find_secret_fields, seal_filter
from fairlead.model.trigger import Trigger, TriggerSpec, TriggerType
from fairlead.model.trigger_kinds import KINDS
from fairlead.model.workflow.spec import ENGINE_RUN
from fairlead.store import sealing
from fairlead.store.resealing import Cursor, ResealedBatch
from fairlead.store.sealed_documents import find_sealer, open_parts, renew_parts
from fairlead.store.sealed_runs import find_secret_inputs

sql = queries_beside(__file__)
Spec = TypeVar("Spec", bound=TriggerSpec)


class _StoredTrigger(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: UUID
    trigger_type: TriggerType
    definition_key: str
    payload_template: Any
    filter: Any
    secret_paths: tuple[str, ...]


async def seal_spec(
    tx: Tx, spec: Spec, *, trigger_id: UUID, tenant_id: UUID, secret_paths: Sequence[str]
) -> Spec:
    """The trigger as it is stored: with sealed literals where its jobs, or the runs that they start, have secrets."""
    if spec.definition_key == ENGINE_RUN:
        secret_paths = await find_secret_inputs(tx, spec.payload_template, tenant_id=tenant_id)
    if not secret_paths or not await sealing.is_on(tx):
        return spec
    fields = find_secret_fields(spec.payload_template, secret_paths, KINDS[spec.trigger_type].roots)
    template_sealer = await find_sealer(tx, tenant_id, _describe_template(trigger_id))
    filter_sealer = await find_sealer(tx, tenant_id, _describe_filter(trigger_id))
    return replace(
        spec,
        payload_template=seal_literals(spec.payload_template, secret_paths, template_sealer),
        filter=seal_filter(spec.filter, fields, filter_sealer),
    )


async def open_trigger(tx: Tx, trigger: Trigger) -> Trigger:
    """The trigger with its secrets. SealBroken if one was changed, or is another trigger's."""
    document = _describe_template(trigger.id)
    template = await open_parts(tx, trigger.payload_template, tenant_id=trigger.tenant_id, document=document)
    opened = await open_filter(tx, trigger.filter, trigger_id=trigger.id, tenant_id=trigger.tenant_id)
    return replace(trigger, payload_template=template, filter=opened)


async def open_filter(tx: Tx, stored: Any, *, trigger_id: UUID, tenant_id: UUID) -> Any:
    """The filter of a trigger with its secrets."""
    return await open_parts(tx, stored, tenant_id=tenant_id, document=_describe_filter(trigger_id))


async def reseal(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Seal literal secrets of the next triggers that are in plain form, or sealed with an earlier key."""
    values = {"after": after, "tenant_id": tenant_id, "limit": limit}
    rows = await tx.all(_StoredTrigger, sql.page, values)
    changed = broken = 0
    for row in rows:
        try:
            changed += await _reseal(tx, row)
        except SealBroken:
            broken += 1
    return ResealedBatch(len(rows), changed, rows[-1].id if len(rows) == limit else None, broken)


async def _reseal(tx: Tx, row: _StoredTrigger) -> int:
    paths: Sequence[str] = row.secret_paths
    if row.definition_key == ENGINE_RUN:
        paths = await find_secret_inputs(tx, row.payload_template, tenant_id=row.tenant_id)
    fields = find_secret_fields(row.payload_template, paths, KINDS[row.trigger_type].roots)
    document = _describe_template(row.id)
    sealer = await find_sealer(tx, row.tenant_id, document)
    template = await renew_parts(tx, row.payload_template, sealer, tenant_id=row.tenant_id, document=document)
    template = seal_literals(template, paths, sealer)
    document = _describe_filter(row.id)
    sealer = await find_sealer(tx, row.tenant_id, document)
    filtered = await renew_parts(tx, row.filter, sealer, tenant_id=row.tenant_id, document=document)
    filtered = seal_filter(filtered, fields, sealer)
    if (template, filtered) == (row.payload_template, row.filter):
        return 0
    values = {
        "id": row.id,
        "old_template": json_text(row.payload_template),
        "old_filter": json_text(row.filter),
        "template": json_text(template),
        "filter": json_text(filtered),
    }
    return await tx.run(sql.replace, values)


def _describe_template(trigger_id: UUID) -> str:
    return f"job_triggers\x00{trigger_id.hex}\x00payload_template"


def _describe_filter(trigger_id: UUID) -> str:
    return f"job_triggers\x00{trigger_id.hex}\x00filter"
