"""No request tells a tenant anything of another: every route as everybody, with what the other owns named everywhere.

FUZZ_REQUESTS says how many requests there are: `make fuzz` sends 12,000. FUZZ_SEED decides which.
"""

import asyncio
import os
from collections import Counter
from uuid import UUID

import pytest
from starlette.requests import HTTPConnection

from fairlead.model.access import Role
from fairlead.server.auth import Gatekeeper
from tests.server.foreign import ATTACKER, ATTACKERS, MARK, VICTIM, Asker, Owned, Sent, Victim, find_ids
from tests.server.matrix import Rule
from tests.server.mcp_clients import client_of
from tests.server.test_secret_requests import quiet
from tests.server.world import BASE, Uncounted, World
from tests.waiting import SECONDS

__all__ = ["quiet"]
pytestmark = pytest.mark.thorough

REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "600"))
SEED = os.environ.get("FUZZ_SEED", "1")
AT_ONCE = 4
# After so many requests, the credentials that the requests took away are given back.
TURN = 200
# How many of the requests of the victim itself must be flagged, else nothing is looked for in the right way.
LEAST_FLAGGED = 0.15
CONTROLS = 300
REVIVE = (
    "update fairlead.tokens set revoked_at = null, addresses = null, scopes = null where id = any(%s)",
    "update fairlead.tenants set addresses = null, paused_at = null where slug = 'acme'",
    "update fairlead.users set disabled_at = null where tenant_id = (select id from fairlead.tenants where slug = 'acme')",
)


class Attack:
    """The credentials of the attackers, and what their requests were answered."""

    def __init__(self, world: World, victim: Victim, asker: Asker) -> None:
        self.world = world
        self.victim = victim
        self.asker = asker
        self.cookie = ""
        self.sent_ids: set[str] = set()
        self.flags: list[str] = []
        self.statuses = Counter[int]()
        self.tool_calls = Counter[bool]()
        self.pairs: set[tuple[Rule, str | None]] = set()

    async def send(self, sent: Sent, *, as_victim: bool = False) -> bool:
        """Send a request. Whether its answer says anything of the victim."""
        self.sent_ids |= find_ids([sent.text])
        headers = dict(sent.headers)
        if as_victim:
            headers |= self.world.headers("viewer", VICTIM)
        elif sent.who == "session":
            headers["Cookie"] = self.cookie
        else:
            headers |= self.world.headers(sent.who, ATTACKER)
        answer = await self.world.client.request(
            sent.rule.method, sent.url, headers=headers, timeout=SECONDS, follow_redirects=False, **sent.more
        )
        if answer.status_code >= 500:
            self.flags.append(f"{sent.who}, {sent.rule}: {answer.status_code} {answer.text[:300]}")
        found = self.find(answer.text + repr(answer.headers))
        if not as_victim:
            self.statuses[answer.status_code] += 1
            self.pairs.add((sent.rule, sent.who))
            self.flags += [f"{sent.who}, {sent.rule}, {sent.text[:500]}: {one}" for one in found]
        return bool(found)

    def find(self, text: str) -> list[str]:
        """What an answer says of the victim that nobody sent."""
        found = sorted((find_ids([text]) & self.victim.ids) - self.sent_ids)
        found += [secret for secret in self.victim.secrets if secret in text]
        at = text.lower().find(MARK)
        return [*found, text[max(0, at - 100) : at + 100]] if at >= 0 else found

    async def revive(self) -> None:
        """Give back what requests took from the attackers."""
        tokens = [token for (owner, _), token in self.world.token_ids.items() if owner == ATTACKER]
        live = [
            token for (_, name), token in self.world.token_ids.items() if name not in ("revoked", "expired")
        ]
        async with self.world.transaction() as tx:
            for statement in REVIVE:
                await tx.run(
                    statement, [[one for one in tokens if one in live]] if "%s" in statement else None
                )
        self.world.app.state.gatekeeper.forget()
        me = await self.world.call("GET", "/me", who=None, headers={"Cookie": self.cookie})
        if me.status_code != 200:
            self.cookie = await self.world.signed_in(Role.OPERATOR, ATTACKER)
        for who in ATTACKERS:
            if who not in ("session", None):
                me = await self.world.call("GET", "/me", who=who)
                assert me.status_code == 200, f"{who}: {me.text}"


@pytest.fixture
async def attack(world: World, quiet: None) -> Attack:
    world.app.state.gatekeeper.failures = Uncounted(world.fl)
    victim = Victim(world, Owned(world, VICTIM))
    await victim.prepare()
    own = Owned(world, ATTACKER)
    await own.make()
    asker = Asker(SEED, victim, own, world.app.openapi())
    return Attack(world, victim, asker)


async def test_no_request_of_another_tenant_tells_or_changes_anything(attack: Attack) -> None:
    own, others = await attack.victim.rows()
    for number in range(0, REQUESTS, AT_ONCE):
        if number % TURN == 0:
            await attack.revive()
        await asyncio.gather(*(attack.send(attack.asker.next()) for _ in range(AT_ONCE)))
    own_after, others_after = await attack.victim.rows()

    print(  # noqa: T201
        f"\nseed {SEED}: {sum(attack.statuses.values())} requests, {len(attack.pairs)} of {len(attack.asker.pairs)} "
        f"pairs of route and role, {len(attack.flags)} flags; answers: {dict(sorted(attack.statuses.items()))}"
    )
    assert attack.flags == [], "\n".join(attack.flags[:20])
    gone, new = own.keys() - own_after.keys(), own_after.keys() - own.keys()
    assert not gone | new, f"gone: {sorted(gone)[:5]}, new: {sorted(new)[:5]}"
    silent = attack.victim.ids - attack.sent_ids
    copied = [
        row for row in others_after.keys() - others.keys() if MARK in row[1] or find_ids([row[1]]) & silent
    ]
    assert copied == [], copied[:10]
    assert attack.statuses[200] + attack.statuses[201] > REQUESTS // 20, "the attackers are let in"
    assert attack.statuses[429] < REQUESTS // 20, "most are answered"


async def test_the_same_requests_of_the_victim_are_flagged(attack: Attack) -> None:
    """The test above can fail: this is what it looks for."""
    read = [pair for pair in attack.asker.pairs if pair[0].method == "GET" and pair[1] == "viewer"]
    flagged = 0
    for number in range(CONTROLS):
        flagged += await attack.send(attack.asker.make(*read[number % len(read)]), as_victim=True)

    print(f"\ncontrol: {flagged} of {CONTROLS} requests of the victim are flagged")  # noqa: T201
    assert flagged > CONTROLS * LEAST_FLAGGED
    assert attack.flags == [], "no answer is an error of the server"
    answer = await attack.world.client.get(
        f"{BASE}/api/v1/jobs", headers=attack.world.headers("viewer", VICTIM)
    )
    assert attack.find(answer.text)


async def test_a_hole_is_found(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where X-Tenant admits everybody everywhere, a few hundred requests show it."""

    async def admit(
        self: Gatekeeper, connection: HTTPConnection, named: str, own: UUID | None
    ) -> UUID | None:
        return attack.world.tenants.get(named, own)

    monkeypatch.setattr(Gatekeeper, "find_tenant", admit)
    await attack.revive()
    for _ in range(CONTROLS):
        await attack.send(attack.asker.next())
    assert len(attack.flags) > CONTROLS // 100


# Tools of MCP


async def use_tools(attack: Attack, who: str, tenant: str, number: int) -> int:
    """Call each tool so often with what the victim owns. The number of answers that say anything of it."""
    flagged = 0
    async with client_of(attack.world, who, tenant, allow_writes=tenant == ATTACKER) as client:
        for tool in (await client.list_tools()).tools * number:
            given = attack.asker.arguments(tool.input_schema)
            if not isinstance(given, dict):
                continue
            attack.sent_ids |= find_ids([repr(given)])
            result = await client.call_tool(tool.name, given)
            found = attack.find(repr(result))
            flagged += bool(found)
            if tenant == ATTACKER:
                attack.tool_calls[result.is_error] += 1
                attack.flags += [f"{who}, {tool.name}, {given}: {one}" for one in found]
    return flagged


async def test_no_tool_of_another_tenant_tells_or_changes_anything(attack: Attack) -> None:
    own, _ = await attack.victim.rows()
    for who in ("viewer", "operator", "tenant_admin", "application"):
        await use_tools(attack, who, ATTACKER, max(2, REQUESTS // 1000))
    own_after, _ = await attack.victim.rows()

    calls = attack.tool_calls
    print(f"\ntools: {calls[False]} answered, {calls[True]} refused, {len(attack.flags)} flags")  # noqa: T201
    assert attack.flags == [], "\n".join(attack.flags[:20])
    assert own.keys() == own_after.keys()
    assert await use_tools(attack, "viewer", VICTIM, 2) > 0, "they would be found"
