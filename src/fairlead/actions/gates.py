"""Pause and resume the whole system, a tenant, a definition or a host."""

from uuid import UUID

from fairlead.db.tx import Tx
from fairlead.errors import Fault, HostUnknown, InvalidInput
from fairlead.model.access import Permission, Principal
from fairlead.model.gate import Gate, GateKind
from fairlead.model.payload import find_storage_flaw
from fairlead.model.request import unknown_definition, unknown_tenant
from fairlead.store import audit, gates

MAX_NOTE = 1000

_PERMISSIONS = {
    GateKind.SYSTEM: Permission.MANAGE_SYSTEM,
    GateKind.TENANT: Permission.MANAGE_TENANTS,
    GateKind.DEFINITION: Permission.MANAGE_DEFINITIONS,
}


async def pause(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | UUID | None = None,
    definition: str | None = None,
    host: str | UUID | None = None,
    note: str | None = None,
) -> Gate:
    """Close the given gate, or without a name the system's: its jobs are not claimed; running jobs continue.

    Closing a closed gate keeps its time and replaces its note.
    """
    held = await _lock_gate(tx, principal, tenant=tenant, definition=definition, host=host, note=note)
    closed = await gates.close(tx, held, actor=principal.actor, note=note)
    await _audit_change(tx, principal, closed, "paused", note)
    return closed


async def resume(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | UUID | None = None,
    definition: str | None = None,
    host: str | UUID | None = None,
    note: str | None = None,
) -> Gate:
    """Open the given gate, or without a name the system's. Opening an open gate writes nothing."""
    held = await _lock_gate(tx, principal, tenant=tenant, definition=definition, host=host, note=note)
    if held.paused_at is None:
        return held
    opened = await gates.reopen(tx, held, actor=principal.actor, note=note)
    await _audit_change(tx, principal, opened, "resumed", note)
    return opened


async def _lock_gate(
    tx: Tx,
    principal: Principal,
    *,
    tenant: str | UUID | None,
    definition: str | None,
    host: str | UUID | None,
    note: str | None,
) -> Gate:
    """Lock the given gate, if this principal may change it."""
    named = {GateKind.TENANT: tenant, GateKind.DEFINITION: definition, GateKind.HOST: host}
    wanted = [(kind, str(name)) for kind, name in named.items() if name is not None]
    _check(wanted, note)
    kind, name = wanted[0] if wanted else (GateKind.SYSTEM, "")
    if kind is GateKind.HOST:
        return await _lock_host(tx, principal, name)
    principal.require(_PERMISSIONS[kind])
    found = await gates.lock(tx, kind, name)
    if not found:
        raise unknown_tenant(name) if kind is GateKind.TENANT else unknown_definition(name)
    return found[0]


async def _lock_host(tx: Tx, principal: Principal, name: str) -> Gate:
    """A host by id or name; of the principal's own tenant, if it has one."""
    found = await gates.lock(tx, GateKind.HOST, name, tenant_id=principal.tenant_id)
    if not found:
        raise HostUnknown(
            f"There is no host {name[:80]!r}. Check its name, or give its id.", [Fault("host", "unknown")]
        )
    if len(found) > 1:
        principal.require(Permission.MANAGE_HOSTS)
        ids = ", ".join(str(one.id) for one in found[:5])
        raise InvalidInput(
            f"{len(found)} hosts are named {name[:80]!r}: give the id of one ({ids}).",
            [Fault("host", "several hosts have this name")],
        )
    principal.require(Permission.MANAGE_HOSTS, found[0].tenant_id)
    return found[0]


def _check(wanted: list[tuple[GateKind, str]], note: str | None) -> None:
    if len(wanted) > 1:
        raise InvalidInput(
            "Name one gate at a time: a tenant, a definition or a host.",
            [Fault(kind, "name only one") for kind, _ in wanted[1:]],
        )
    texts = [*wanted, *([] if note is None else [("note", note)])]
    faults = [Fault(field, why) for field, text in texts if (why := find_storage_flaw(text))]
    if note is not None and len(note) > MAX_NOTE:
        faults.append(Fault("note", f"must have at most {MAX_NOTE} characters"))
    if faults:
        raise InvalidInput(f"{faults[0].path}: {faults[0].message}.", faults)


async def _audit_change(tx: Tx, principal: Principal, gate: Gate, what: str, note: str | None) -> None:
    await gates.notify(tx)
    # the same names as in other entries of the audit log
    named = {GateKind.TENANT: "slug", GateKind.DEFINITION: "key", GateKind.HOST: "name"}
    details = {named[gate.kind]: gate.name} if gate.kind in named else {}
    await audit.write(
        tx,
        actor=principal.actor,
        action=f"{gate.kind}_{what}",
        resource_type=gate.kind,
        resource_id=gate.id,
        tenant_id=gate.tenant_id,
        details=details | ({"note": note} if note else {}),
    )
