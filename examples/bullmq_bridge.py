"""Jobs for a BullMQ worker in Node: Fairlead hands them over, and takes results and failures back.

It needs redis-server, node, and the npm packages bullmq and ioredis where node finds them:
npm install --prefix examples/node bullmq ioredis

Run it with: python examples/bullmq_bridge.py
"""

import asyncio
import subprocess

from node_worker import FAIRLEAD, is_installed, running

from fairlead import Fairlead, errors

DEFINE = "definitions put example.resize --kind bullmq --queue org-{tenant} --max-attempts 1"


async def main() -> None:
    async with Fairlead(actor="bullmq") as fl:
        await fl.add_tenant("example", exist_ok=True)
        good = await fl.enqueue("example.resize", tenant="example", payload={"image": "cat.png", "width": 80})
        bad = await fl.enqueue("example.resize", tenant="example", payload={"image": "broken.png"})
        print(await good.result(timeout=120))
        try:
            await bad.result(timeout=120)
        except errors.JobFailed as error:
            print(error)


if __name__ == "__main__":
    if is_installed():
        subprocess.run([FAIRLEAD, *DEFINE.split()], check=True, stdout=subprocess.DEVNULL)
        with running():
            asyncio.run(main())
    else:
        print("skipped: redis-server, node or its packages are not installed")
