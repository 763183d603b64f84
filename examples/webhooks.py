"""A webhook: when a job fails, a receiver (here this program's own) is told, and checks who told it.

Run it with: python examples/webhooks.py
"""

import asyncio
import base64
import hmac
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from fairlead import Fairlead, Fatal

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
FILE = 'http_requests = true\nhttp_allow = ["127.0.0.1"]\n[http.secrets]\nhook = "env:HOOK_SECRET"\n'
COMMAND = (sys.executable, "-m", "fairlead.cli", "webhooks")
got: list[Any] = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        content = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        mac = hmac.digest(base64.b64decode(SECRET.removeprefix("whsec_")), content, "sha256")
        genuine = self.headers["webhook-signature"] == f"v1,{base64.b64encode(mac).decode()}"
        got.append(json.loads(body) if genuine else "forged")
        self.wfile.write(b"HTTP/1.0 204 Thanks\r\n\r\n")


async def main(fl: Fairlead, url: str) -> None:
    @fl.job(key="example.import")
    async def import_file(name: str) -> None:
        raise Fatal(f"{name} is empty")

    async with fl:
        add = (*COMMAND, "add", url, "--tenant=global", "--event=job.failed", "--sign-with=hook", "--json")
        [hook] = json.loads(await asyncio.to_thread(subprocess.check_output, add))["items"]
        await import_file.enqueue(tenant="global", name="a.csv")
        while not got:
            await fl.tick()  # in earnest: fairlead worker --scheduler
        print(f"{got[0]['type']}: {got[0]['data']['definition_key']}: {got[0]['data']['last_error']}")
        await asyncio.to_thread(subprocess.check_call, (*COMMAND, "remove", hook["id"]))


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server, TemporaryDirectory() as folder:
        os.environ.update(HOOK_SECRET=SECRET, FAIRLEAD_CONFIG=f"{folder}/fairlead.toml")
        Path(folder, "fairlead.toml").write_text(FILE)
        Thread(target=server.serve_forever, daemon=True).start()
        fairlead = Fairlead(actor="webhook-example")
        fairlead.allow_builtins()
        asyncio.run(main(fairlead, f"http://127.0.0.1:{server.server_port}/hooks"))
