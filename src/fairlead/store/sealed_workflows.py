"""Literal secrets in steps of workflows: sealed as they are stored, if the database encrypts.

A sealed literal is bound to its tenant, the keys of the workflow and of the definition, the step and its place there. So the
steps of a run have it as the published workflow does. A workflow of the tenant `global` is sealed anew for the tenant of
each run, which takes all of its keys along when it is moved.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import SealBroken
from fairlead.model.secrets.sealed_payload import has_sealed
from fairlead.model.workflow.graph import Node
from fairlead.model.workflow.secrets import SecretPathsByDefinition, seal_step_fields
from fairlead.model.workflow.spec import find_definition_key
from fairlead.store import definitions, sealing
from fairlead.store.resealing import Cursor, ResealedBatch
from fairlead.store.sealed_documents import find_sealer, open_parts, renew_parts

sql = queries_beside(__file__)

# The fields of a step that may have sealed literals.
FIELDS = ("payload", "for_each")


class _StoredSpec(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: UUID
    key: str
    spec: dict[str, Any]


class _StoredStep(msgspec.Struct, frozen=True):
    run_id: UUID
    place: int
    tenant_id: UUID
    key: str
    spec: dict[str, Any]
    secret_paths: tuple[str, ...]


async def seal_spec(tx: Tx, spec: Any, secrets: SecretPathsByDefinition, *, tenant_id: UUID) -> Any:
    """A workflow's document as it is stored: with sealed literals where its jobs have secrets."""
    if not any(secrets.values()) or not await sealing.is_on(tx):
        return spec
    return await _seal_steps(tx, spec, secrets, tenant_id=tenant_id)


async def open_spec(tx: Tx, spec: Any, *, tenant_id: UUID) -> Any:
    """A workflow's document with its secrets. SealBroken if one was changed, or is another workflow's."""
    if not has_sealed(spec["steps"]):
        return spec
    steps = [await open_step(tx, one, tenant_id=tenant_id, key=spec["key"]) for one in spec["steps"]]
    return {**spec, "steps": steps}


async def open_step(tx: Tx, step: Any, *, tenant_id: UUID, key: str) -> Any:
    """A step of a workflow, as JSON, with its secrets."""
    document = _describe_step(key, step)
    return {**step, **await open_parts(tx, _fields_of(step), tenant_id=tenant_id, document=document)}


async def seal_nodes(
    tx: Tx,
    nodes: Sequence[Node],
    secrets: SecretPathsByDefinition,
    *,
    key: str,
    tenant_id: UUID,
    sealed_for: UUID | None,
) -> Sequence[Node]:
    """The steps of a run as they are stored; `sealed_for` is the tenant of the published workflow, if there is one."""
    sealed = [has_sealed([node.step.payload, node.step.for_each]) for node in nodes]
    if not any(sealed) and (not any(secrets.values()) or not await sealing.is_on(tx)):
        return nodes
    made = list[Node]()
    for node, has in zip(nodes, sealed, strict=True):
        step = {"name": node.step.name, "definition": node.step.definition_key}
        fields = {"payload": node.step.payload, "for_each": node.step.for_each}
        if has and sealed_for is not None and sealed_for != tenant_id:
            fields = await open_parts(tx, fields, tenant_id=sealed_for, document=_describe_step(key, step))
        paths = secrets.get(node.step.definition_key, ())
        if paths or has:
            sealer = await find_sealer(tx, tenant_id, _describe_step(key, step))
            fields = seal_step_fields(fields, paths, sealer)
        made.append(replace(node, step=replace(node.step, **fields)))
    return made


async def reseal(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Seal literal secrets of the next workflows that are in plain form, or sealed with an earlier key."""
    rows = await tx.all(_StoredSpec, sql.page, {"after": after, "tenant_id": tenant_id, "limit": limit})
    keys = {find_definition_key(step) for row in rows for step in row.spec["steps"]}
    secrets = {key: one.secret_paths for key, one in (await definitions.get_by_keys(tx, keys)).items()}
    changed = broken = 0
    for row in rows:
        try:
            new = await _seal_steps(tx, row.spec, secrets, tenant_id=row.tenant_id)
        except SealBroken:
            broken += 1
            continue
        if new != row.spec:
            values = {"id": row.id, "old": json_text(row.spec), "new": json_text(new)}
            changed += await tx.run(sql.replace, values)
    return ResealedBatch(len(rows), changed, rows[-1].id if len(rows) == limit else None, broken)


async def reseal_steps(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Seal literal secrets of the next steps of runs that are in plain form, or sealed with an earlier key."""
    run_id, place = after if isinstance(after, tuple) else (after, -1)
    values = {"run_id": run_id, "place": place, "tenant_id": tenant_id, "limit": limit}
    rows = await tx.all(_StoredStep, sql.steps_page, values)
    changed = broken = 0
    for row in rows:
        try:
            new = await _seal_step(tx, row.spec, row.secret_paths, tenant_id=row.tenant_id, key=row.key)
        except SealBroken:
            broken += 1
            continue
        if new != row.spec:
            old = {"run_id": row.run_id, "place": row.place, "old": json_text(row.spec)}
            changed += await tx.run(sql.replace_step, {**old, "new": json_text(new)})
    last = (rows[-1].run_id, rows[-1].place) if len(rows) == limit else None
    return ResealedBatch(len(rows), changed, last, broken)


async def _seal_steps(tx: Tx, spec: Any, secrets: SecretPathsByDefinition, *, tenant_id: UUID) -> Any:
    steps = [
        await _seal_step(
            tx, one, secrets.get(find_definition_key(one), ()), tenant_id=tenant_id, key=spec["key"]
        )
        for one in spec["steps"]
    ]
    return {**spec, "steps": steps}


async def _seal_step(tx: Tx, step: Any, paths: Sequence[str], *, tenant_id: UUID, key: str) -> Any:
    """A step with sealed literals; those that an earlier key has sealed are sealed anew."""
    fields = _fields_of(step)
    if not paths and not has_sealed(fields):
        return step
    document = _describe_step(key, step)
    sealer = await find_sealer(tx, tenant_id, document)
    fields = await renew_parts(tx, fields, sealer, tenant_id=tenant_id, document=document)
    return {**step, **seal_step_fields(fields, paths, sealer)}


def _fields_of(step: Mapping[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in FIELDS if name in step}


def _describe_step(key: str, step: Mapping[str, Any]) -> str:
    return f"workflows\x00{key}\x00{step['name']}\x00{find_definition_key(step)}"
