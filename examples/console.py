"""The console, as a browser uses it: python examples/console.py

People open /console/ and see; here a program signs in, looks at the jobs, and presses a button.
"""

import asyncio
from uuid import uuid4

import httpx2

from fairlead import Fairlead
from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server.app import create_app

fl = Fairlead()
PASSWORD = "correct horse battery staple"  # noqa: S105 - an example


@fl.job(key="example.wait")
async def wait(ctx: object) -> None:
    """Nobody runs it here."""


async def add_user(role: Role) -> str:
    """What `fairlead users add` does."""
    email = f"{role}-{uuid4().hex[:8]}@example.com"
    tenant = await fl.add_tenant("example", exist_ok=True)
    async with fl.transaction() as tx:
        await access.add_user(
            tx, fl.principal, email=email, password=PASSWORD, role=role, tenant_id=tenant.id
        )
    return email


async def sign_in(client: httpx2.AsyncClient, email: str) -> httpx2.Response:
    client.cookies.clear()
    return await client.post("/sign-in", data={"email": email, "password": PASSWORD})


async def main() -> None:
    transport = httpx2.ASGITransport(app=create_app(fl))
    async with fl, httpx2.AsyncClient(transport=transport, base_url="http://localhost/console") as client:
        entered = await sign_in(client, await add_user(Role.OPERATOR))
        print("signed in:", entered.status_code, "to", entered.headers["location"])
        job = await wait.enqueue(tenant="example")
        shown = await client.get("/jobs", params={"q": "definition:example.wait status:queued"})
        print("the jobs page has the job:", str(job.id) in shown.text)
        pressed = await client.post(f"/jobs/{job.id}/cancel", headers={"HX-Request": "true"})
        print(pressed.headers["HX-Trigger"])
        print("it is", (await job.read()).status)
        await sign_in(client, await add_user(Role.VIEWER))
        print("to a viewer:", (await client.post(f"/jobs/{job.id}/retry")).status_code)


if __name__ == "__main__":
    asyncio.run(main())
