"""Slots and labels: large jobs take several slots of a worker, and some jobs need a worker with a label.

Run it with: python examples/labels.py
"""

import asyncio
from uuid import uuid4

from fairlead import Fairlead

fl = Fairlead(actor="labels-example")
# the slots in use, one number for each start and each end
used = [0]


@fl.job(key="example.render", slots=3)
async def render(scene: str) -> str:
    used.append(used[-1] + 3)
    await asyncio.sleep(0.05)
    used.append(used[-1] - 3)
    return f"rendered {scene}"


@fl.job(key="example.train", requires={"gpu": "true"})
async def train(model: str) -> str:
    return f"trained {model}"


async def work(stop: asyncio.Event, **labels: str) -> None:
    await fl.work(stop, concurrency=4, labels=labels)


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"studio-{uuid4().hex[:8]}")
        scenes = [await render.enqueue(tenant=tenant.id, scene=name) for name in ("sea", "sky", "port")]
        model = await train.enqueue(tenant=tenant.id, model="waves")
        stop = asyncio.Event()
        plain = asyncio.create_task(work(stop))
        await asyncio.gather(*(job.result(timeout=120) for job in scenes))
        print(f"a worker with 4 slots used at most {max(used)} of them")
        [reason, *_] = (await fl.why(model.id)).reasons
        print(reason.message)

        with_gpu = asyncio.create_task(work(stop, gpu="true"))
        print(await model.result(timeout=120))
        stop.set()
        await asyncio.gather(plain, with_gpu)


if __name__ == "__main__":
    asyncio.run(main())
