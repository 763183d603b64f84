"""Encryption of secrets at rest: turn it on, and look after its keys."""

from fairlead.db.tx import Tx
from fairlead.model.access import Permission, Principal
from fairlead.store import audit, sealing
from fairlead.store.sealing import seal, unseal

__all__ = ["enable", "seal", "unseal"]


async def enable(tx: Tx, principal: Principal) -> bool:
    """Seal secrets that are stored from now on; False if they are already. It cannot be turned off again.

    EncryptionKeyMissing if this process has no master key: every process that stores or runs jobs with secrets needs it.
    """
    principal.require(Permission.MANAGE_SYSTEM)
    master = tx.keyring.require_master()
    if not await sealing.enable(tx):
        return False
    await audit.write(
        tx,
        actor=principal.actor,
        action="encryption_enabled",
        resource_type="system",
        details={"master_key": master.id},
    )
    return True
