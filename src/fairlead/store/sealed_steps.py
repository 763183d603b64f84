"""Results of secret steps of durable functions as they are stored: sealed, if the database encrypts."""

from typing import Any
from uuid import UUID

import msgspec

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.errors import SealBroken
from fairlead.keys.sealed import DataKey, open_text, parse_sealed, seal_text
from fairlead.model.durable import Place, StepEnd
from fairlead.model.secrets.sealed_payload import KEY, is_sealed_value
from fairlead.store import sealing

sql = queries_beside(__file__)


class SecretResult(msgspec.Struct, frozen=True):
    """The stored result of a secret step."""

    tenant_id: UUID
    job_id: UUID
    branch: str
    position: int
    result: Any

    @property
    def place(self) -> Place:
        return Place(self.branch, self.position)


class ResealedSteps(msgspec.Struct, frozen=True):
    """What one batch has done, and the last step that it read; None: this was the last batch."""

    changed: int
    after: SecretResult | None
    # results that were changed by others, and cannot be opened
    broken: int = 0


async def seal_step(tx: Tx, tenant_id: UUID, step: StepEnd) -> StepEnd:
    """The step as it is stored, with its result sealed; as it is if the database does not encrypt."""
    if not await sealing.is_on(tx):
        return step
    key = await sealing.find_current_key(tx, tenant_id)
    place = Place(step.branch, step.position)
    return msgspec.structs.replace(
        step, secret=True, result=_seal(key, tenant_id, step.job_id, place, step.result)
    )


async def seal_answer(tx: Tx, tenant_id: UUID, job_id: UUID, place: Place, result: Any) -> Any:
    """The result of a wait whose answer has secrets, as it is stored: sealed, if the database encrypts."""
    if not await sealing.is_on(tx):
        return result
    return _seal(await sealing.find_current_key(tx, tenant_id), tenant_id, job_id, place, result)


async def require_key(tx: Tx, tenant_id: UUID) -> bool:
    """EncryptionKeyMissing or EncryptionKeyUnavailable if this process could not seal a result now."""
    if await sealing.is_on(tx):
        await sealing.find_current_key(tx, tenant_id)
    return True


async def open_result(tx: Tx, tenant_id: UUID, job_id: UUID, place: Place, result: Any) -> Any:
    """The result of a secret step. SealBroken if it was changed, or is another step's."""
    if not is_sealed_value(result):
        return result
    sealed = parse_sealed(result[KEY])
    [key] = await sealing.find_keys(tx, [sealed.key_id])
    return msgspec.json.decode(open_text(key, tenant_id, _describe_purpose(job_id, place), sealed))


async def list_results(tx: Tx, job_id: UUID) -> list[Any]:
    """The results of the secret steps of a job, opened."""
    found = await tx.all(SecretResult, sql.results, {"job_id": job_id})
    return [await _open(tx, one) for one in found]


async def copy_results(tx: Tx, job_id: UUID, *, new_id: UUID) -> None:
    """Seal the results that a new job has from another one for the new job."""
    for one in await tx.all(SecretResult, sql.results, {"job_id": new_id}):
        if is_sealed_value(one.result):
            plain = await open_result(tx, one.tenant_id, job_id, one.place, one.result)
            await _replace(tx, one, plain)


async def reseal(tx: Tx, *, after: SecretResult | None, tenant_id: UUID | None, limit: int) -> ResealedSteps:
    """Seal the next results that are in plain form, or sealed with an earlier key."""
    values = {
        "job_id": UUID(int=0) if after is None else after.job_id,
        "branch": "" if after is None else after.branch,
        "position": -1 if after is None else after.position,
        "tenant_id": tenant_id,
        "limit": limit,
    }
    found = await tx.all(SecretResult, sql.page, values)
    changed = broken = 0
    for one in found:
        try:
            changed += await _replace(tx, one, await _open(tx, one))
        except SealBroken:
            broken += 1
    return ResealedSteps(changed, found[-1] if len(found) == limit else None, broken)


async def _open(tx: Tx, one: SecretResult) -> Any:
    return await open_result(tx, one.tenant_id, one.job_id, one.place, one.result)


async def _replace(tx: Tx, one: SecretResult, plain: Any) -> int:
    key = await sealing.find_current_key(tx, one.tenant_id)
    values = {
        "job_id": one.job_id,
        "branch": one.branch,
        "position": one.position,
        "old": json_text(one.result),
        "new": json_text(_seal(key, one.tenant_id, one.job_id, one.place, plain)),
    }
    return await tx.run(sql.replace, values)


def _seal(key: DataKey, tenant_id: UUID, job_id: UUID, place: Place, result: Any) -> dict[str, str]:
    text = msgspec.json.encode(result).decode()
    return {KEY: seal_text(key, tenant_id, _describe_purpose(job_id, place), text)}


def _describe_purpose(job_id: UUID, place: Place) -> str:
    return f"step\x00{job_id.hex}\x00{place.branch}\x00{place.position}"
