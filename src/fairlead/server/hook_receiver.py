"""Receives deliveries to hooks: finds the hook, verifies the signature, and stores the event once."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

from fastapi import Request

from fairlead.actions import hook_deliveries
from fairlead.actions.hook_deliveries import Receipt
from fairlead.actions.hooks import HOOKS_CHANGED
from fairlead.db.tx import TransactionIdentity
from fairlead.errors import (
    BodyNotJson,
    BodyTooLarge,
    ContentTypeUnsupported,
    HookDisabled,
    Refused,
    TooManyRequests,
    WebhookUnverified,
)
from fairlead.library.app import Fairlead
from fairlead.model.hooks.delivery import HookDelivery, read_delivery
from fairlead.model.hooks.hook import KeyedHook, Refusal
from fairlead.model.hooks.signatures import verify
from fairlead.server.auth import Gatekeeper, read_bounded_body
from fairlead.server.client_addresses import client_address
from fairlead.server.handover import note_tenant
from fairlead.server.rate_limits import CallerLimiter, address_failures
from fairlead.server.request_turns import own_request

# How long a process uses a hook without reading it again: forged deliveries then cost no query.
REMEMBER_SECONDS = 2.0
MOST_REMEMBERED = 10_000
# At most one refusal of a hook is written in this time.
REFUSAL_SECONDS = 1.0

_REFUSALS: dict[type[Refused], Refusal] = {
    BodyNotJson: Refusal.BODY_INVALID,
    ContentTypeUnsupported: Refusal.BODY_INVALID,
    HookDisabled: Refusal.DISABLED,
    TooManyRequests: Refusal.RATE_LIMITED,
}


class HookReceiver:
    """Verifies deliveries, and caches hooks briefly, also those that do not exist."""

    def __init__(
        self,
        fl: Fairlead,
        gatekeeper: Gatekeeper,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._fl = fl
        self._gatekeeper = gatekeeper
        self._clock = clock
        self._now = now
        # apart from the requests of the tenant's programs: a flood of these loses no delivery
        self._deliveries = CallerLimiter(
            fl,
            kind="hooks",
            refusal="Too many deliveries",
            refusal_of_tenant="Too many deliveries to all hooks of this tenant",
        )
        self._known: OrderedDict[tuple[str, str], tuple[float, KeyedHook | None]] = OrderedDict()
        self._refused_at: OrderedDict[UUID, float] = OrderedDict()
        fl.commit_hooks.add(HOOKS_CHANGED, self._known.clear)

    async def find(self, request: Request, tenant: str, name: str) -> KeyedHook:
        """The hook, or WebhookUnverified. A wrong address counts as a failed attempt of the client's address."""
        note_tenant(request.scope, tenant)
        hook = await self._find_cached(tenant, name)
        if hook is None:
            await self._gatekeeper.require_here(request, tenant)
            await self._gatekeeper.failures.count(address_failures(client_address(request)))
            raise _build_refusal()
        return hook

    async def read_body(self, hook: KeyedHook, request: Request) -> bytes:
        """The body of a delivery, which is at most as large as a payload may be."""
        try:
            return await read_bounded_body(request, self._fl.settings.max_payload_bytes)
        except BodyTooLarge:
            await self._note_refusal(hook.id, Refusal.BODY_TOO_LARGE)
            raise

    async def receive(
        self, hook: KeyedHook, headers: Mapping[str, str], body: bytes, ip: str | None
    ) -> tuple[HookDelivery, Receipt | None]:
        """Verify and store a delivery. No receipt for a question of the sender that is not an event."""
        # a valid delivery is accepted, however many forged ones come from the same address
        if refusal := self._verify(hook, headers, body):
            await self._note_refusal(hook.id, refusal)
            await self._gatekeeper.failures.count(address_failures(ip))
            raise _build_refusal()
        own_request(hook.tenant_id)
        try:
            await self._deliveries.take(f"hook:{hook.id}", hook.tenant_id)
            if not hook.is_enabled:
                raise hook_deliveries.disabled_error()
            delivery = read_delivery(hook.scheme, headers, body, hook=hook.name, unique_by=hook.unique_by)
            if delivery.challenge is not None or delivery.is_probe:
                return delivery, None
            return delivery, await self._store(hook, delivery, ip)
        except Refused as error:
            await self._note_refusal(hook.id, _REFUSALS.get(type(error), Refusal.EVENT_REFUSED))
            raise

    def _verify(self, hook: KeyedHook, headers: Mapping[str, str], body: bytes) -> Refusal | None:
        return verify(
            hook.scheme,
            hook.secrets,
            headers,
            body,
            now=self._now(),
            tolerance_seconds=hook.tolerance_seconds,
        )

    async def _store(self, hook: KeyedHook, delivery: HookDelivery, ip: str | None) -> Receipt:
        acting = TransactionIdentity(hook.tenant_id, ip, hook.id)
        async with self._fl.database.transaction(acting) as tx:
            return await hook_deliveries.receive(tx, self._fl.catalog, hook, delivery)

    async def _find_cached(self, tenant: str, name: str) -> KeyedHook | None:
        at, hook = self._known.get((tenant, name), (-REMEMBER_SECONDS, None))
        now = self._clock()
        if now - at < REMEMBER_SECONDS:
            return hook
        async with self._fl.database.transaction() as tx:
            hook = await hook_deliveries.find_keyed(tx, tenant=tenant, name=name)
        self._known[tenant, name] = (now, hook)
        self._known.move_to_end((tenant, name))
        if len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return hook

    async def _note_refusal(self, hook_id: UUID, refusal: Refusal) -> None:
        """Show the tenant's people that a delivery was refused; a flood of forged ones writes once a second."""
        now = self._clock()
        if now - self._refused_at.get(hook_id, now - REFUSAL_SECONDS) < REFUSAL_SECONDS:
            return
        self._refused_at[hook_id] = now
        self._refused_at.move_to_end(hook_id)
        if len(self._refused_at) > MOST_REMEMBERED:
            self._refused_at.popitem(last=False)
        await self._fl.database.single(
            partial(hook_deliveries.note_refusal, hook_id=hook_id, refusal=refusal)
        )


def _build_refusal() -> WebhookUnverified:
    """The same refusal for every address, so that nobody finds out which hooks exist."""
    return WebhookUnverified(
        "There is no hook at this address, or the signature of this delivery is missing, wrong or too old. "
        "Check the address, and sign with the hook's secret."
    )
