"""A loop of your own instead of a worker: claim jobs, keep them alive, and say how each ended.

Run it with: python examples/own_loop.py
"""

import asyncio

from fairlead import Fairlead, JobLease

fl = Fairlead(actor="own-loop")


@fl.job(key="example.resize", max_attempts=3)
async def resize(image: str, sizes: int = 3) -> None:
    """Only described here: the loop below does the work."""


async def work(lease: JobLease) -> None:
    """One job. The end of the block is its success, an exception its failure."""
    async with lease:
        sizes = lease.payload.get("sizes", 3)
        if not sizes:
            await lease.fail("there is nothing to do", retryable=False)
            return
        for size in range(sizes):
            if await lease.heartbeat():  # somebody canceled the job: stop, and say so
                await lease.release()
                return
            await asyncio.sleep(0.01)  # the work itself
            await lease.progress(100 * (size + 1) / sizes, f"size {size + 1}")
        await lease.succeed({"image": lease.payload["image"], "made": sizes})


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        good = await resize.enqueue(tenant="example", image="cat.png")
        bad = await resize.enqueue(tenant="example", image="dog.png", sizes=0)
        unwanted = await resize.enqueue(tenant="example", image="eel.png")

        # until nothing is left; a loop that goes on would sleep a second, and claim again
        while leases := await fl.claim(10, definitions=[resize]):
            await fl.cancel(unwanted.id)
            for ended in await asyncio.gather(*map(work, leases), return_exceptions=True):
                if ended is not None:  # recorded with the job already
                    print(f"{type(ended).__name__}: {ended}")

        for job in [await one.read() for one in (good, bad, unwanted)]:
            print(f"{job.payload['image']} is {job.status}: {job.output or job.last_error or 'no output'}")


if __name__ == "__main__":
    asyncio.run(main())
