"""Messages of Kafka become events, each once, and the events jobs. The broker is the one that librdkafka has for tests.

Needs fairlead[kafka]. Run it with: python examples/event_sources.py
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from fairlead import Fairlead

FILE = """[sources.example-orders]
driver = "kafka"
servers = ["{server}"]
topics = ["orders"]
id_header = "order-id"
tenant = "global"
event = "example.{{topic}}"
"""
COMMAND = (sys.executable, "-m", "fairlead.cli", "sources")
packed: list[int] = []
fl = Fairlead(actor="source-example")


@fl.on("example.orders", tenant="global", payload={"order": "{{event.order}}"}, window=0)
@fl.job(key="example.pack")
async def pack(order: int) -> None:
    packed.append(order)


async def main(producer: Producer) -> None:
    async with fl:
        await fl.sync_schedules()  # a worker does it as it starts
        source = await asyncio.create_subprocess_exec(*COMMAND, "run", stdout=subprocess.DEVNULL)
        for order in (1, 2, 1, 2, 3):  # the publisher sent 1 and 2 twice
            producer.produce("orders", json.dumps({"order": order}), "shop", headers={"order-id": str(order)})
        producer.flush()
        while 3 not in packed:
            await fl.tick()  # in earnest: fairlead worker --scheduler
        print(f"packed {sorted(packed)}")
        source.terminate()
        await source.wait()
        listed = await asyncio.to_thread(subprocess.check_output, (*COMMAND, "list", "--json"))
        print("{messages} events, {duplicates} duplicates".format(**json.loads(listed)["items"][0]))


if __name__ == "__main__":
    broker = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
    server = next(iter(broker.list_topics(timeout=60).brokers.values()))
    with TemporaryDirectory() as folder:
        os.environ["FAIRLEAD_CONFIG"] = f"{folder}/fairlead.toml"
        Path(folder, "fairlead.toml").write_text(FILE.format(server=f"{server.host}:{server.port}"))
        asyncio.run(main(broker))
