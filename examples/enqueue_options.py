"""Options of single jobs: tags, a timeout, a key that stays taken, and a debounced job.

Run it with: python examples/enqueue_options.py
"""

import asyncio
from datetime import timedelta
from uuid import uuid4

from fairlead import Debounce, Fairlead

fl = Fairlead(actor="options-example")


@fl.job(key="example.index", timeout=3600)
async def index(page: int, words: str) -> str:
    return f"page {page}: {words}"


async def main() -> None:
    async with fl:
        tenant = await fl.add_tenant(f"wiki-{uuid4().hex[:8]}")
        tagged = index.options(tags=["nightly", "page-1"], timeout=timedelta(minutes=5))
        nightly = await tagged.enqueue(tenant=tenant.id, page=1, words="all")

        once = index.options(dedupe_key="page-2", unique_for=timedelta(hours=1))
        first = await once.enqueue(tenant=tenant.id, page=2, words="first")

        # somebody types: the page is indexed once, when it was left alone for a second, or after a minute
        typed = index.options(debounce=Debounce(key="page-3", seconds=1, max_seconds=60))
        edits = [
            await typed.enqueue(tenant=tenant.id, page=3, words=words) for words in ("a", "a b", "a b c")
        ]

        stop = asyncio.Event()
        worker = asyncio.create_task(fl.work(stop))
        results = [await job.result(timeout=120) for job in (nightly, first, edits[-1])]
        stop.set()
        await worker

        job = await nightly.read()
        print(f"{', '.join(job.tags or ())}: at most {job.timeout_seconds} s")
        again = await once.enqueue(tenant=tenant.id, page=2, words="second")
        print(f"the key of a job that has ended is still taken: {again.id == first.id}")
        print(f"three edits, {len({job.id for job in edits})} job: {results[-1]}")


if __name__ == "__main__":
    asyncio.run(main())
