"""`fairlead webhooks`: added in one command, called by a real worker and scheduler."""

from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import msgspec
import pytest

from fairlead.model.messages.webhook import decode_key, sign_webhook
from tests.cli.test_command_jobs import Machine, serves
from tests.waiting import SECONDS

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
FILE = """
http_requests = true
http_allow = ["127.0.0.1"]

[http.tenants.acme.secrets]
hook = "env:HOOK"

[commands.wrong]
argv = ["/bin/sh", "-c", "exit 65"]
fatal_exit_codes = [65]
env = ["PATH"]
"""


class Receiver(ThreadingHTTPServer):
    """Takes what it is sent."""

    def __init__(self) -> None:
        self.got: Queue[tuple[Message, bytes]] = Queue()
        super().__init__(("127.0.0.1", 0), _Post)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks"


class _Post(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.got.put((self.headers, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.thorough
def test_one_command_and_a_url_is_told_how_jobs_end(
    database_url: str, tmp_path: Path, receiver: Receiver
) -> None:
    machine = Machine(database_url, tmp_path)
    machine.env["HOOK"] = SECRET
    machine.allows(FILE)
    assert "No webhooks." in machine("webhooks", "list").output
    add = ("webhooks", "add", receiver.url, "--tenant", "acme", "--event", "job.failed")
    assert machine.refused(*add) == "definition_unknown"

    machine.synced()
    with machine.worker("--scheduler") as process:
        serves(process)
        made = machine.json(*add, "--event", "job.canceled", "--definition", "wrong", "--sign-with", "hook")
        job = machine.enqueued("wrong")
        headers, body = receiver.got.get(timeout=SECONDS)
        machine.json("webhooks", "remove", made["items"][1]["id"])

    assert [one["event_name"] for one in made["items"]] == ["job.failed", "job.canceled"]
    said = msgspec.json.decode(body)
    assert (said["type"], said["data"]["job_id"], said["data"]["attempt_no"]) == ("job.failed", job, 1)
    assert receiver.got.empty()
    sent_at = int(headers["webhook-timestamp"])
    expected = sign_webhook(decode_key(SECRET), headers["webhook-id"], sent_at, body)
    assert headers["webhook-signature"] == expected["webhook-signature"]
    assert machine.json("events", "show", headers["webhook-id"])["name"] == "job.failed"

    [left] = machine.json("webhooks", "list", "--tenant", "acme")["items"]
    assert (left["id"], left["last_firing"]["outcome"]) == (made["items"][0]["id"], "enqueued")
    told = machine("webhooks", "list").output
    assert all(word in told for word in (receiver.url, "job.failed", "wrong", "hook", "yes"))
    assert machine("webhooks", "remove", left["id"]).output == f"removed {left['id']}\n"
    assert machine.refused("events", "emit", "job.failed", "--tenant", "acme") == "event_reserved"
