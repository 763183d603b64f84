"""Fairlead's API inside your own web application: python examples/mount_api.py

The host is Starlette here, and the calls stay in this process. Serve `app` with uvicorn and it is the same over HTTP.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount

from fairlead import Fairlead
from fairlead.server.app import create_app

fl = Fairlead()


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with fl:  # open for as long as the application runs
        yield


app = Starlette(routes=[Mount("/fairlead", app=create_app(fl))], lifespan=lifespan)


async def main() -> None:
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),  # a server does this for you
        httpx2.AsyncClient(transport=transport, base_url="http://app.example/fairlead") as client,
    ):
        print("ready:", (await client.get("/readyz")).json()["status"])
        described = (await client.get("/api/v1/openapi.json")).json()
        print(
            "described at /fairlead/api/v1/docs:", described["info"]["title"], described["servers"][0]["url"]
        )
        refused = await client.get("/api/v1/jobs")
        print("without a token:", refused.status_code, refused.json()["code"])
        shown = await client.get("/console/jobs")
        print("the console:", shown.status_code, "to", shown.headers["location"])


if __name__ == "__main__":
    asyncio.run(main())
