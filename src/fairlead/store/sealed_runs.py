"""Secrets in inputs of workflow runs: sealed as they are stored, if the database encrypts."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import SealBroken
from fairlead.model.secrets.redact import join_path, split_path
from fairlead.store import sealing, workflows
from fairlead.store.resealing import Cursor, ResealedBatch
from fairlead.store.sealed_documents import find_sealer, open_parts, renew_parts
from fairlead.store.workflows import LockedRun

sql = queries_beside(__file__)

# The field of an ENGINE_RUN payload that becomes the input of the run.
INPUT = "input"


class _StoredInput(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: UUID
    input: Any
    secret_paths: tuple[str, ...]


async def seal_input(tx: Tx, given: Any, paths: Sequence[str], *, run_id: UUID, tenant_id: UUID) -> Any:
    """The input of a run as it is stored: with sealed secrets."""
    if not paths or not await sealing.is_on(tx):
        return given
    sealer = await find_sealer(tx, tenant_id, _describe_input(run_id))
    return sealer.seal_paths(given, paths)


async def open_input(tx: Tx, run: LockedRun) -> None:
    """Give a locked run its input with its secrets. SealBroken if one was changed, or is another run's."""
    if run.secret_paths:
        run.input = await open_parts(tx, run.input, tenant_id=run.tenant_id, document=_describe_input(run.id))


async def find_secret_inputs(tx: Tx, payload: Any, *, tenant_id: UUID) -> list[str]:
    """The paths in a payload, or template, of ENGINE_RUN that become secrets of the run's input."""
    if not isinstance(payload, dict) or not isinstance(payload.get(INPUT), dict | list | str):
        return []
    key, version = payload.get("workflow"), payload.get("version")
    if not isinstance(key, str) or not (version is None or type(version) is int):
        return []
    found = await workflows.find_newest(tx, tenant_id=tenant_id, key=key, version=version)
    return [] if found is None else [join_path((INPUT, *split_path(one))) for one in found.secret_paths]


async def reseal(tx: Tx, *, after: Cursor, tenant_id: UUID | None, limit: int) -> ResealedBatch:
    """Seal secrets of the next inputs that are in plain form, or sealed with an earlier key."""
    rows = await tx.all(_StoredInput, sql.page, {"after": after, "tenant_id": tenant_id, "limit": limit})
    changed = broken = 0
    for row in rows:
        try:
            changed += await _reseal(tx, row)
        except SealBroken:
            broken += 1
    return ResealedBatch(len(rows), changed, rows[-1].id if len(rows) == limit else None, broken)


async def _reseal(tx: Tx, row: _StoredInput) -> int:
    document = _describe_input(row.id)
    sealer = await find_sealer(tx, row.tenant_id, document)
    new = await renew_parts(tx, row.input, sealer, tenant_id=row.tenant_id, document=document)
    new = sealer.seal_paths(new, row.secret_paths)
    if new == row.input:
        return 0
    return await tx.run(sql.replace, {"id": row.id, "old": json_text(row.input), "new": json_text(new)})


def _describe_input(run_id: UUID) -> str:
    return f"workflow_runs\x00{run_id.hex}\x00input"
