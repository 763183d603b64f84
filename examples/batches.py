"""One call for many jobs: a batch handler indexes documents together, and each job has its own outcome.

Run it with: python examples/batches.py
"""

import asyncio
from dataclasses import dataclass

from fairlead import BatchJob, Fairlead, Fatal, Snooze
from fairlead.errors import JobFailed

fl = Fairlead(actor="batches")
index: dict[int, str] = {}


@dataclass
class Document:
    number: int
    text: str = ""


@fl.job(key="example.index", batch=100, batch_wait=0.5)
async def index_documents(jobs: list[BatchJob[Document]]) -> list[object]:
    """Index documents, all of them with one request."""
    print(f"{len(jobs)} documents of {jobs[0].tenant}")
    index.update({job.payload.number: job.payload.text for job in jobs if job.payload.text})
    results: list[object] = []
    for job in jobs:
        if job.payload.number == 7:
            results.append(Fatal("there is no document 7"))  # fails only this job, for good
        elif job.payload.number == 8:
            results.append(Snooze(3600))  # comes back in an hour
        else:
            results.append({"indexed": job.payload.number})
    return results


async def main() -> None:
    stop = asyncio.Event()
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        requests = [
            index_documents.with_arguments(tenant="example", number=number, text=f"text {number}")
            for number in range(10)
        ]
        jobs = await fl.enqueue_many(requests)
        working = asyncio.create_task(fl.work(stop))  # in earnest: fairlead worker
        print(await jobs[0].result(timeout=60))
        try:
            await jobs[7].result(timeout=60)
        except JobFailed as error:
            print(error.last_error)
        print(f"document 8 is {(await jobs[8].read()).status}")
        stop.set()
        await working


if __name__ == "__main__":
    asyncio.run(main())
