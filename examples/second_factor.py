"""A second factor for a password: python examples/second_factor.py

A user sets it up, signs in with a code, loses the phone, and signs in with a recovery code.
"""

import asyncio
from uuid import uuid4

import httpx2
import pyotp

from fairlead import Fairlead
from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server.app import create_app

fl = Fairlead()
PASSWORD = "correct horse battery staple"  # noqa: S105 - an example


async def add_user() -> str:
    """What `fairlead users add` does."""
    email = f"operator-{uuid4().hex[:8]}@example.com"
    tenant = await fl.add_tenant("example", exist_ok=True)
    async with fl.transaction() as tx:
        await access.add_user(
            tx, fl.principal, email=email, password=PASSWORD, role=Role.OPERATOR, tenant_id=tenant.id
        )
    return email


async def set_up(client: httpx2.AsyncClient) -> list[str]:
    """Begin the set-up, and confirm it with the first code. The recovery codes."""
    begun = await client.post("/account/second-factor", json={"password": PASSWORD})
    app = pyotp.TOTP(begun.json()["key"])  # a phone reads the same from a QR code of `uri`
    confirmed = await client.post("/account/second-factor/confirm", json={"code": app.now()})
    return list(confirmed.json()["recovery_codes"])


async def main() -> None:
    transport = httpx2.ASGITransport(app=create_app(fl))
    async with fl, httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1") as client:
        login = {"email": await add_user(), "password": PASSWORD}
        print("with the password:", (await client.post("/login", json=login)).status_code)
        recovery_codes = await set_up(client)
        print("set up, with", len(recovery_codes), "recovery codes")
        client.cookies.clear()
        refused = await client.post("/login", json=login)
        print("with the password:", refused.status_code, refused.json()["code"])
        lost_phone = login | {"code": recovery_codes[0]}
        print("with a recovery code:", (await client.post("/login", json=lost_phone)).status_code)
        again = await client.post("/login", json=lost_phone)
        print("with the same again:", again.status_code, again.json()["code"])
        shown = await client.get("/account/second-factor")
        print("recovery codes left:", shown.json()["recovery_codes_left"])


if __name__ == "__main__":
    asyncio.run(main())
