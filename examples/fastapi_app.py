"""A FastAPI application that enqueues and shows what became of its jobs.

Run it with: python examples/fastapi_app.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

import httpx2
from fastapi import FastAPI, Header, HTTPException

from fairlead import Fairlead, FairleadError

fl = Fairlead(actor="shop")


@fl.job(key="example.receipt")
async def send_receipt(order: int) -> str:
    return f"receipt of order {order}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with fl:  # open for as long as the application runs
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=202)
async def place_order(order: int, x_tenant: Annotated[str, Header()] = "global") -> dict[str, UUID]:
    try:
        return {"job": (await send_receipt.enqueue(tenant=x_tenant, order=order)).id}
    except FairleadError as error:
        raise HTTPException(error.http_status, error.message) from error


@app.get("/receipts/{job_id}")
async def show_receipt(job_id: UUID) -> dict[str, object]:
    job = await fl.read(job_id)
    return {"status": job.status, "receipt": job.output}


async def main() -> None:
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://shop.example")
    async with app.router.lifespan_context(app), client:  # a server does this for you
        placed = await client.post("/orders/7")
        await fl.tick()  # what a worker does
        print(placed.status_code, (await client.get(f"/receipts/{placed.json()['job']}")).json())
        refused = (await client.post("/orders/8", headers={"X-Tenant": "nobody"})).json()
        print("refused:", refused["detail"])


if __name__ == "__main__":
    asyncio.run(main())
