"""Watch what happens to a tenant's jobs, as it happens.

Run it with: python examples/live_updates.py

In earnest the socket is that of `fairlead serve`, with a token of the tenant: fairlead tokens create.
"""

import asyncio
import json

import websockets

from fairlead import Fairlead
from fairlead.actions import access
from fairlead.model.access import Role
from fairlead.server.app import bind, create_app, create_server

fl = Fairlead(actor="live-example")


@fl.job(key="example.cheer")
async def cheer(name: str) -> str:
    return f"Hurrah for {name}"


async def watch(url: str, token: str, ready: asyncio.Event) -> None:
    """Print frames until a job has run."""
    headers = {"Authorization": f"Bearer {token}"}
    async with websockets.connect(f"{url}/api/v1/live", additional_headers=headers) as socket:
        async for message in socket:
            frame = json.loads(message)
            print(frame["type"], frame.get("definition_key"))
            ready.set()  # the first one says hello
            if frame["type"] == "job_run.completed":
                return


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant("example", exist_ok=True)
        async with fl.transaction() as tx:
            made = await access.create_token(
                tx, fl.principal, name="watcher", role=Role.VIEWER, tenant_id=tenant.id
            )
        server, listening, ready = create_server(create_app(fl)), bind("127.0.0.1", 0), asyncio.Event()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.up.wait()
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}"
        watching = asyncio.create_task(watch(url, made.secret, ready))
        await ready.wait()
        await cheer.enqueue(tenant="example", name="Ada")
        await fl.tick()
        await watching
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
