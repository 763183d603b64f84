"""Jobs for a worker behind SQS: it takes messages from one queue, and sends its results to another.
Here SQS is moto_server, in memory: pip install 'moto[server]', in an environment of its own

Run it with: python examples/sqs_engine.py
"""

import asyncio
import json

from aiobotocore.session import get_session
from bridged import bridged, find, find_port

from fairlead import Fairlead

KEYS = {"access_key_id": "any", "secret_access_key": "any"}


async def work(url: str) -> None:
    """Resize pictures for ever."""
    aws = {f"aws_{name}": value for name, value in KEYS.items()}
    async with get_session().create_client("sqs", "eu-west-1", endpoint_url=url, **aws) as sqs:
        jobs = (await sqs.create_queue(QueueName="resize"))["QueueUrl"]
        results = (await sqs.create_queue(QueueName="results"))["QueueUrl"]
        while True:
            taken = await sqs.receive_message(QueueUrl=jobs, WaitTimeSeconds=5, MaxNumberOfMessages=10)
            for message in taken.get("Messages", []):
                job = json.loads(message["Body"])
                lease = {name: job[name] for name in ("job_id", "attempt_no", "lease_token")}
                output = {"image": job["payload"]["image"], "attempt": job["attempt_no"]}
                result = {**lease, "status": "succeeded", "output": output}
                await sqs.send_message(QueueUrl=results, MessageBody=json.dumps(result))
                await sqs.delete_message(QueueUrl=jobs, ReceiptHandle=message["ReceiptHandle"])


async def main(url: str) -> None:
    async with Fairlead(actor="sqs") as fl:
        await fl.add_tenant("example", exist_ok=True)
        working = asyncio.create_task(work(url))
        job = await fl.enqueue("example.resize", tenant="example", payload={"image": "cat.png"})
        print(await job.result(timeout=120))
        working.cancel()


if __name__ == "__main__":
    if server := find("moto_server"):
        port = find_port()
        url = f"http://127.0.0.1:{port}"
        options = {
            "driver": "sqs",
            "endpoint_url": url,
            "region": "eu-west-1",
            "results_queue": "results",
            **KEYS,
        }
        table = "\n".join(f'{name} = "{value}"' for name, value in options.items())
        with bridged([server, "-p", str(port)], port, f"{table}\ncreate_queues = true", "resize"):
            asyncio.run(main(url))
    else:
        print("skipped: moto_server is not installed")
