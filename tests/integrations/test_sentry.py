"""Exceptions of jobs in Sentry: the real SDK, and the envelopes that it would send."""

import base64
import gzip
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Annotated, Any

import msgspec
import pytest
import sentry_sdk
import structlog
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from fairlead import BatchJob, Fairlead, Fatal, Secret, Settings, Snooze, sync, testing
from fairlead.integrations.sentry import report_attempt, report_batch
from tests.given import OTHER, TENANT
from tests.processes import FAIRLEAD, environment, started
from tests.waiting import SECONDS

SECRET = "correct-horse-battery-staple"  # noqa: S105 - what must not be found


class Recorder(Transport):
    """A transport that keeps what it should send, as it would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent.append(envelope.serialize())

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for body in self.sent for event in read_events(body)]


def read_events(body: bytes) -> list[dict[str, Any]]:
    found = [item.get_event() for item in Envelope.deserialize(body).items]
    return [dict(event) for event in found if event is not None]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Sentry's SDK in this process, without the integrations that patch libraries for good."""
    found = Recorder()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=found,
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[LoggingIntegration()],
    )
    yield found
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def fl(settings: Settings) -> Fairlead:
    fl = Fairlead(settings=settings)
    fl.around_attempt(report_attempt)
    fl.around_batch(report_batch)
    return fl


@pytest.mark.thorough
async def test_an_exception_is_reported_with_its_job_from_the_loop_and_from_a_thread(
    fl: Fairlead, recorder: Recorder
) -> None:

    @fl.job(key="on_loop", max_attempts=2)
    async def on_loop(amount: int) -> None:
        raise ValueError(f"no {amount}")

    @fl.job(key="in_thread", max_attempts=2)
    def in_thread(amount: int) -> None:
        raise ValueError(f"no {amount}")

    async with fl:
        jobs = {one.key: await one.enqueue(tenant=TENANT, amount=5) for one in (on_loop, in_thread)}
        await testing.run_due(fl, until_idle=True)
        ended = {key: (await job.read()).last_error for key, job in jobs.items()}

    assert ended == {"on_loop": "ValueError: no 5", "in_thread": "ValueError: no 5"}
    seen = {
        (event["tags"]["fairlead.definition"], event["tags"]["fairlead.attempt"]): event
        for event in recorder.events
    }
    assert seen.keys() == {(key, attempt) for key in jobs for attempt in ("1", "2")}
    assert len(recorder.events) == 4
    for (key, attempt), event in seen.items():
        assert event["tags"]["fairlead.tenant"] == TENANT
        assert event["tags"]["fairlead.job_id"] == str(jobs[key].id)
        assert event["contexts"]["fairlead"]["attempt"] == int(attempt)
        assert event["contexts"]["fairlead"]["max_attempts"] == 2
        assert event["transaction"] == key
        assert event["level"] == "error"
        [exception] = event["exception"]["values"]
        assert (exception["type"], exception["value"]) == ("ValueError", "no 5")
        assert exception["mechanism"] == {"type": "fairlead", "handled": False}
        frame = exception["stacktrace"]["frames"][-1]
        assert (frame["function"], frame["vars"]["amount"]) == (key, "5")


async def test_a_snooze_and_a_success_report_nothing_and_fatal_is_an_error(
    fl: Fairlead, recorder: Recorder
) -> None:

    @fl.job
    async def work(what: str) -> Any:
        if what == "raised":
            raise Snooze(3600)
        if what == "fatal":
            raise Fatal("never")
        return Snooze(3600) if what == "returned" else None

    async with fl:
        for what in ("raised", "returned", "fine", "fatal"):
            await work.enqueue(tenant=TENANT, what=what)
        await testing.run_due(fl)

    [event] = recorder.events
    assert event["exception"]["values"][0]["value"] == "never"


async def test_what_the_function_captures_itself_has_the_job_and_nothing_of_another(
    fl: Fairlead, recorder: Recorder
) -> None:
    sentry_sdk.add_breadcrumb(message="the worker has started")

    @fl.job
    def work(number: int) -> None:
        logging.getLogger("shop").warning("step %s", number)
        sentry_sdk.set_tag(f"only_{number}", "yes")
        sentry_sdk.capture_message(f"look at {number}")

    async with fl:
        for number in (1, 2):
            await work.enqueue(tenant=TENANT, number=number)
        await testing.run_due(fl)
    sentry_sdk.capture_message("after")

    seen = {event["message"]: event for event in recorder.events}
    for number, other in ((1, 2), (2, 1)):
        event = seen[f"look at {number}"]
        assert event["tags"]["fairlead.definition"] == "work"
        assert [crumb["message"] for crumb in event["breadcrumbs"]["values"]] == [f"step {number}"]
        assert f"only_{number}" in event["tags"]
        assert f"only_{other}" not in event["tags"]
    assert "fairlead.definition" not in seen["after"].get("tags", {})


# Secrets


class Opaque:
    """An object whose repr has the secret: the SDK sends the repr."""

    def __repr__(self) -> str:
        return f"<card {SECRET}>"


def leak(password: str, *, is_deep: bool = False) -> None:
    """Put the secret into every part of an event."""
    encoded = base64.b64encode(password.encode())
    logging.getLogger("shop").warning("signing in with %s", password)
    sentry_sdk.set_tag("password", password)
    sentry_sdk.set_extra("card", Opaque())
    sentry_sdk.set_extra("cards", {"list": [password, {password}], password: len(encoded)})
    sentry_sdk.set_user({"id": "7", "email": f"{password}@example.org"})
    sentry_sdk.set_context("login", {"url": f"https://example.org/?p={password}"})
    if is_deep:
        circle: dict[str, Any] = {"password": password}
        circle["circle"] = circle
        sentry_sdk.set_extra("circle", circle)
    try:
        dict[str, str]()[password]
    except KeyError as error:
        error.add_note(f"it was {password}")
        raise RuntimeError(f"cannot sign in with {password!r}") from error


@pytest.mark.parametrize("is_deep", [False, True])
async def test_secrets_of_the_payload_are_nowhere_in_what_is_sent(
    fl: Fairlead, recorder: Recorder, *, is_deep: bool
) -> None:

    @fl.job(max_attempts=1)
    def sign_in(user: str, password: Annotated[str, Secret()]) -> None:
        leak(password, is_deep=is_deep)

    async with fl:
        job = await sign_in.enqueue(tenant=TENANT, user="ada", password=SECRET)
        await testing.run_due(fl)

    [event] = recorder.events
    sent = b"".join(recorder.sent).decode()
    assert SECRET not in sent
    assert base64.b64encode(SECRET.encode()).decode() not in sent
    assert event["exception"]["values"][-1]["value"] == "cannot sign in with '[redacted]'"
    assert event["breadcrumbs"]["values"][0]["message"] == "signing in with [redacted]"
    assert event["tags"]["fairlead.job_id"] == str(job.id)
    assert event["extra"]["card"] == "<card [redacted]>"
    assert event["user"]["id"] == "7"
    # variables may have it in other forms
    frames = [frame for one in event["exception"]["values"] for frame in one["stacktrace"]["frames"]]
    assert frames
    assert not any("vars" in frame for frame in frames)


async def test_patterns_of_the_settings_are_masked_in_local_variables_too(
    settings: Settings, recorder: Recorder
) -> None:
    fl = Fairlead(settings=replace(settings, redact_patterns=(r"sk_live_\w+",)))
    fl.around_attempt(report_attempt)

    @fl.job(max_attempts=1)
    async def charge(key: str, amount: int) -> None:
        raise ValueError(f"{key} cannot pay {amount}")

    async with fl:
        await charge.enqueue(tenant=TENANT, key="sk_live_12345", amount=7)
        await testing.run_due(fl)

    [event] = recorder.events
    assert "sk_live_12345" not in b"".join(recorder.sent).decode()
    [exception] = event["exception"]["values"]
    assert exception["value"] == "[redacted] cannot pay 7"
    assert exception["stacktrace"]["frames"][-1]["vars"] == {"key": "'[redacted]'", "amount": "7"}


async def test_an_event_that_cannot_be_masked_is_not_sent(
    fl: Fairlead, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr("fairlead.integrations.sentry._mask_event", fail)

    @fl.job(max_attempts=1)
    def sign_in(password: Annotated[str, Secret()]) -> None:
        raise RuntimeError(password)

    async with fl:
        await sign_in.enqueue(tenant=TENANT, password=SECRET)
        with structlog.testing.capture_logs() as lines:
            await testing.run_due(fl)

    assert recorder.events == []
    [line] = [one for one in lines if one["event"] == "sentry_event_dropped"]
    assert line["error"] == "ZeroDivisionError"
    assert SECRET not in str(line)


# Batches


class Login(msgspec.Struct):
    token: Annotated[str, Secret()]


async def test_the_exception_of_a_batch_is_reported_once_with_its_jobs_and_without_their_secrets(
    fl: Fairlead, recorder: Recorder
) -> None:

    @fl.job(batch=2, batch_wait=60, batch_across_tenants=True, max_attempts=1)
    async def index(jobs: list[BatchJob[Login]]) -> None:
        raise RuntimeError(" ".join(job.payload.token for job in jobs))

    async with fl:
        made = [
            await fl.enqueue("index", tenant=tenant, payload={"token": f"{SECRET}-{tenant}"})
            for tenant in (TENANT, OTHER)
        ]
        await testing.run_due(fl)

    [event] = recorder.events
    assert SECRET not in b"".join(recorder.sent).decode()
    assert event["tags"] == {"fairlead.definition": "index", "fairlead.jobs": "2"}
    assert sorted(event["contexts"]["fairlead"]["job_ids"]) == sorted(str(job.id) for job in made)


# In an application of its own

SHOP = """
import sentry_sdk
from fairlead import Fairlead
from fairlead.integrations.sentry import report_attempt

sentry_sdk.init()  # with SENTRY_DSN
fl = Fairlead()
fl.around_attempt(report_attempt)

@fl.job(isolate=True, max_attempts=1)
def alone() -> None:
    raise ValueError("in a process of its own")
"""


@pytest.fixture
def sentry() -> Iterator[tuple[str, Queue[bytes]]]:
    """A server that takes envelopes: its DSN, and what it got."""
    received: Queue[bytes] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            received.put(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://key@127.0.0.1:{server.server_port}/1", received
        server.shutdown()
        thread.join()


@pytest.mark.thorough
def test_the_report_of_an_isolated_function_is_sent_before_its_process_is_killed(
    settings: Settings, tmp_path: Path, sentry: tuple[str, Queue[bytes]]
) -> None:
    dsn, received = sentry
    (tmp_path / "shop.py").write_text(SHOP)
    env = {"FAIRLEAD_DATABASE_URL": str(settings.database_url), "SENTRY_DSN": dsn}
    with started([FAIRLEAD, "worker", "shop:fl"], env=env, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving alone")
        with sync.Fairlead(settings=settings) as fl:
            job = fl.enqueue("alone", tenant=TENANT)
            found = read_events(received.get(timeout=SECONDS))

    [event] = found
    assert event["exception"]["values"][-1]["value"] == "in a process of its own"
    assert event["tags"]["fairlead.job_id"] == str(job.id)


def test_without_the_sdk_the_import_says_what_to_install() -> None:
    script = "import sys; sys.modules['sentry_sdk'] = None; import fairlead.integrations.sentry"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )

    assert "pip install 'fairlead[sentry]'" in done.stderr
