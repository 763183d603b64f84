"""Scoped tokens, their rotation, and an allow-list of addresses: python examples/tokens.py"""

import asyncio
from uuid import uuid4

import httpx2

from fairlead import Fairlead
from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server.app import create_app

fl = Fairlead()
SHOP, ELSEWHERE = "10.1.2.3", "203.0.113.9"
SCOPED = {"name": "shop", "role": "operator", "scopes": ["jobs.read"], "addresses": ["10.0.0.0/8"]}


def client_at(address: str) -> httpx2.AsyncClient:
    """A client as the server sees it from this address."""
    transport = httpx2.ASGITransport(app=create_app(fl), client=(address, 1))
    return httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1")


async def add_admin() -> str:
    """What `fairlead tokens create --role tenant_admin` does. The secret."""
    tenant = await fl.add_tenant(f"shop-{uuid4().hex[:8]}")
    role = Role.TENANT_ADMIN
    async with fl.transaction() as tx:
        made = await access.create_token(tx, fl.principal, name="admin", role=role, tenant_id=tenant.id)
    return made.secret


async def ask(client: httpx2.AsyncClient, path: str, secret: str) -> str:
    answer = await client.get(path, headers={"Authorization": f"Bearer {secret}"})
    return f"{answer.status_code} {answer.json().get('code', '')}".strip()


async def main() -> None:
    async with fl, client_at(SHOP) as shop, client_at(ELSEWHERE) as elsewhere:
        secret = await add_admin()
        admin = {"Authorization": f"Bearer {secret}"}
        old = (await shop.post("/tokens", json=SCOPED, headers=admin)).json()
        print("jobs:", await ask(shop, "/jobs", old["secret"]))
        print("events:", await ask(shop, "/events", old["secret"]))
        print("jobs, from elsewhere:", await ask(elsewhere, "/jobs", old["secret"]))

        new = (await shop.post(f"/tokens/{old['id']}/rotate", json={}, headers=admin)).json()
        for one in (old, new):  # both work for an hour
            print(f"after the rotation: {await ask(shop, '/jobs', one['secret'])}")

        set_list = await shop.put("/addresses", json={"addresses": ["10.0.0.0/8"]}, headers=admin)
        print("allow-list:", set_list.json()["addresses"])
        print("the admin, from elsewhere:", await ask(elsewhere, "/jobs", secret))
        refused = await shop.put("/addresses", json={"addresses": ["192.0.2.0/24"]}, headers=admin)
        print("a list without the admin:", refused.json()["code"])


if __name__ == "__main__":
    asyncio.run(main())
