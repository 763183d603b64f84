"""Webhooks in: a delivery that GitHub signed becomes an event and a job, once; a forged one becomes nothing.

Run it with: python examples/webhooks_in.py
"""

import asyncio
import hmac
import json
import subprocess
import sys
from typing import Any

import httpx2

from fairlead import Fairlead
from fairlead.server.app import create_app

COMMAND = (sys.executable, "-m", "fairlead.cli", "hooks")
fl = Fairlead(actor="webhooks-in-example")
commits: list[str] = []


@fl.on("example-code.push", tenant="global", payload={"commit": "{{event.after}}"}, window=0)
@fl.job(key="example.deploy")
async def deploy(commit: str) -> None:
    commits.append(commit)


async def run(*argv: str) -> Any:
    return json.loads(await asyncio.to_thread(subprocess.check_output, (*COMMAND, *argv, "--json")))


async def main() -> None:
    async with fl:
        await fl.sync_schedules()  # a worker does it as it starts
        hook = await run("create", "example-code", "--tenant", "global", "--scheme", "github")
        transport = httpx2.ASGITransport(app=create_app(fl))  # in earnest: fairlead serve
        async with httpx2.AsyncClient(transport=transport, base_url="http://fairlead.example") as github:

            async def send(secret: str) -> httpx2.Response:
                body = b'{"ref": "refs/heads/main", "after": "6dcb09b"}'
                headers = {
                    "X-GitHub-Event": "push",
                    "X-GitHub-Delivery": "72d3162e",
                    "X-Hub-Signature-256": f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}",
                }
                return await github.post(hook["path"], content=body, headers=headers)

            for _ in range(2):
                print("signed:", (answer := await send(hook["secret"])).status_code, answer.json())
            print("forged:", (answer := await send("a guess")).status_code, answer.json()["code"])
        while not commits:
            await fl.tick()  # in earnest: fairlead worker --scheduler
        print("deployed:", commits)
        await run("delete", hook["id"])


if __name__ == "__main__":
    asyncio.run(main())
