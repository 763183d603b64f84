"""The built-in job http.request: it asks a server of this program's own, which a setting allows it to reach.

Run it with: python examples/http_request.py
"""

import asyncio
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from fairlead import Fairlead
from fairlead.settings import load


class Shop(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        order = self.rfile.read(int(self.headers["content-length"])).decode()
        print(
            f"the shop got {order}, key {self.headers['x-key']}, signed: {'webhook-signature' in self.headers}"
        )
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"number": 7}')

    def log_message(self, *_: Any) -> None:
        """The answer is enough."""


async def main(port: int) -> None:
    # in earnest these are in fairlead.toml, and only for hosts that jobs have business with
    settings = replace(load(), http_requests=True, http_allow=("127.0.0.1",))
    fl = Fairlead(settings=settings, actor="http-request")
    fl.allow_builtins()
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        order = {
            "url": f"http://127.0.0.1:{port}/orders",
            "method": "POST",
            "body": {"book": "Emma"},
            "secret_headers": {"x-key": "open-sesame"},
            "signing_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }
        job = await fl.enqueue("http.request", tenant="example", payload=order)
        inner = {"url": f"http://192.168.0.1:{port}/"}
        refused = await fl.enqueue("http.request", tenant="example", payload=inner)
        await fl.tick()
        print((await job.result(timeout=120))["body"])
        print((await refused.read()).last_error)


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop:
        Thread(target=shop.serve_forever, daemon=True).start()
        asyncio.run(main(shop.server_port))
        shop.shutdown()
