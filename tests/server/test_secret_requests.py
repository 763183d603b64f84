"""An operator cannot tell one secret from another: generated requests are answered alike in two tenants that differ in nothing else.

Where all answers are equal, it does not matter in which order an operator asks, and what an answer makes them ask next.
ORACLE_REQUESTS says how many requests there are in all: `make oracle` sends 10,000.
"""

import asyncio
import json
import logging
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
import structlog

from fairlead import Context, Fatal, Secret
from fairlead.model.dedupe import dedupe_key
from fairlead.runtime.trigger_loops import trigger_due
from tests.runs import published
from tests.server.test_canary import ON_EVENT
from tests.server.world import BASE, World

pytestmark = pytest.mark.thorough

REQUESTS = int(os.environ.get("ORACLE_REQUESTS", "200"))
SEED = os.environ.get("ORACLE_SEED", "1")
# Between two times that the jobs run, which is not the operator's doing.
TURN = 50
# Of the same length, which may be seen; and no UUIDs, which the comparison leaves out.
SECRETS = ("Beadc0de.7f3a.41bc.9d55.0c4e8aa2b791", "Q1w2e3r4.t5z6.u7i8.o9p0.a1s2d3f4g5h6")
STATUSES = ("queued", "running", "succeeded", "failed", "dead_letter", "canceled")

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHORT = re.compile(r"\b[0-9a-f]{8}\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?")
_MEASURED = re.compile(r'("\w*(?:_ms|_seconds|p50|p95|p99|max|bytes)":)\d[\d.e-]*')
_WORKER = re.compile(r"(?<![\w.-])[\w.-]{1,80}(:|%3A)\d+\1[0-9a-f]{12}")
# How long ago something was, or how long it takes: on a busy machine a second passes between the two answers.
_SPAN = re.compile(r"\b\d+ (?:ms|s|min|h)\b")
_NUMBERS = re.compile(r"\d[\d.,]*(?:\s?(?:ms|s|min|h)\b)?")
# How many marks the axis of a timeline has depends on the measured time.
_TICKS = re.compile(r'(?<=<svg class="ticks")[^>]*>.*?(?=</svg>)|<line [^>]*></line>')
_NOW = re.compile(r"(?<=data-moment>)now\b")
# The beginnings of the tenant's tokens, and cursors of the audit log, which hold times.
_RANDOM = re.compile(r"\bfl_[\w-]{8}|\bWyI[\w-]{20,}")
# Different at each request: how long an answer is, is compared with its text.
_PASSING = {"content-length", "date", "x-request-id"}
# Whether an answer is long enough to be compressed: the microseconds of a time have up to six digits.
_PASSING |= {"content-encoding", "vary"}


@dataclass(frozen=True)
class Sent:
    """A request, with `<job 3>` for the third job of the tenant that it is sent in."""

    method: str
    path: str
    more: dict[str, Any] = field(default_factory=dict)
    page: bool = False


class Side:
    """One of the tenants, as its operator sees it."""

    def __init__(self, world: World, tenant: str, secret: str) -> None:
        self.world = world
        self.tenant = tenant
        self.secret = secret
        self.jobs: list[str] = []
        self._cookie = ""
        self._order: dict[str, int] = {}

    async def prepare(self) -> None:
        """What the tenant's admin and its application made with the secret."""
        self._cookie = await self.world.signed_in(tenant=self.tenant)
        template = {"password": self.secret, "note": "{{event.note}}", "how": "{{event.how}}"}
        await self.make("/jobs/triggers", "tenant_admin", {**ON_EVENT, "payload_template": template})
        step = {name: f"{{{{input.{name}}}}}" for name in ("password", "note", "how")}
        flow = {
            "key": "flow",
            "steps": [{"name": "one", "definition": "secretive", "payload": step}],
            "input_schema": {"properties": {"password": {"type": "string", "x-secret": True}}},
        }
        await self.make("/workflows", "tenant_admin", flow)
        for how in range(6):
            payload = {"password": self.secret, "token": f"Bearer {self.secret}", "note": "plain", "how": how}
            options: tuple[dict[str, Any], ...] = (
                {},
                {"dedupe_key": dedupe_key("secretive", self.tenant, payload)},
                {"dedupe_key": f"once {self.secret} {how}", "correlation_id": f"call {self.secret}"},
            )
            for more in options:
                new = {"definition_key": "secretive", "payload": payload, **more}
                await self.make("/jobs", "application", new)

    async def make(self, path: str, who: str, body: Any) -> None:
        answer = await self.world.call("POST", path, who=who, tenant=self.tenant, json=body)
        assert answer.status_code in (201, 202), answer.text

    async def bring(self, note: Any, how: int) -> None:
        """The application hands on a text that the operator chose, as a shop does with what its customers write."""
        chosen = {"note": note, "how": how}
        await self.make("/events", "application", {"name": "mail.wanted", "data": chosen})
        given = {"password": self.secret, **chosen}
        await self.make("/workflows/flow/runs", "application", {"input": given})

    async def learn_jobs(self) -> None:
        async with self.world.fl.database.transaction() as tx:
            rows = await tx.values(
                "select id::text from fairlead.jobs where tenant_id = %s order by id",
                [self.world.tenants[self.tenant]],
            )
        self.jobs = [job for (job,) in rows]

    async def ask(self, sent: Sent) -> str:
        """The answer, as it is to be compared."""
        more = self._filled(sent.more)
        path = self._filled(sent.path)
        if sent.page:
            headers = {"Cookie": self._cookie, **more.pop("headers", {})}
            path = f"{BASE}/console{path}"
            answer = await self.world.call(sent.method, path, who=None, headers=headers, **more)
        else:
            answer = await self.world.call(sent.method, path, tenant=self.tenant, **more)
        assert answer.status_code < 500, answer.text
        assert self.secret not in answer.text + repr(answer.headers), sent
        told = [f"{name}: {value}" for name, value in answer.headers.items() if name not in _PASSING]
        return self._compared("\n".join([str(answer.status_code), *told, answer.text]), page=sent.page)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.replace("<tenant>", self.tenant)
            return re.sub(r"<job (\d+)>", lambda found: self.jobs[int(found[1]) % len(self.jobs)], value)
        if isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        return [self._filled(one) for one in value] if isinstance(value, list) else value

    def _compared(self, text: str, *, page: bool) -> str:
        """The text with ids numbered as they came, and without times, measures and the tenant's name."""
        text = _UUID.sub(lambda found: f"id{self._order.setdefault(found[0], len(self._order))}", text)
        text = re.sub(self.tenant, "*", text, flags=re.IGNORECASE)
        text = _RANDOM.sub("*", _WORKER.sub("worker", _TIME.sub("*", text)))
        if not page:
            return _SPAN.sub("#", _MEASURED.sub(r"\1#", text))
        text = _TICKS.sub("", text)
        ends = {one[-8:] for one in self._order}
        return _NUMBERS.sub(
            "#", _NOW.sub("0 s ago", _SHORT.sub(lambda found: "id" if found[0] in ends else found[0], text))
        )


class Asker:
    """Makes requests of every kind that an operator may send, with guesses of both secrets wherever a text may be."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._at = 0
        self._kinds: list[tuple[int, Callable[[], Sent]]] = [
            (12, self._list),
            (20, self._look),
            (14, self._retry),
            (10, self._edit),
            (8, self._cancel),
            (8, self._enqueue),
            (2, self._enqueue_many),
            (8, self._change_many),
            (6, self._overview),
            (4, self._page),
            (2, self._page_form),
        ]

    def next(self) -> Sent:
        [(_, kind)] = self._random.choices(self._kinds, [weight for weight, _ in self._kinds])
        return kind()

    def chosen(self) -> tuple[Any, int]:
        """What stands beside the secret in a job that the application enqueues."""
        # so long that what is said is cut within the secret, wherever it is cut
        length = self._random.choice((0, 0, 0, 200, 480, 980, 1980, 8150)) + self._random.randrange(40)
        return self._random.choice((self.guess(), self.guess() * 3, "x" * length)), self._random.randrange(6)

    def guess(self) -> str:
        """A part of one of the secrets, or nearly all of it: only who has the whole may find it."""
        secret = self._random.choice(SECRETS)
        size = self._random.choice((1, 3, 4, 5, 8, 15, 16, 17, 24, 35))
        at = self._random.choice((0, 0, len(secret) - size, self._random.randrange(len(secret) - size + 1)))
        part = secret[at : at + size]
        forms = (
            "{}",
            "{}…",
            "…{}",
            "x {}…",
            "once {}",
            "call {}",
            "Bearer {}",
            "{}x",
            "[redacted]{}",
            "{}[redacted]",
        )
        return self._random.choice(forms).format(part)

    def _key(self) -> str:
        """A guess of a text beside the payload, such as a dedupe key that was made of it."""
        part = self.guess()
        key = dedupe_key("secretive", "<tenant>", {"how": 1, "note": "plain", "password": part})
        return self._random.choice((part, key, key[: key.index(part) + len(part)]))

    def _job(self) -> str:
        """Mostly the same for a while: it takes several requests to cancel a job, to edit it and to look at it again."""
        if self._random.random() < 0.15:
            self._at = self._random.choice((self._random.randrange(18), self._random.randrange(10_000)))
        return f"<job {self._at}>"

    def _note(self) -> Any:
        guesses = [self.guess() for _ in range(self._random.choice((1, 3, 20)))]
        return self._random.choice((guesses, guesses[0], {guesses[0]: guesses[-1]}, "plain", 1))

    def _payload(self) -> dict[str, Any]:
        payload = {"note": self._note(), "how": self._random.randrange(6)}
        kept = self._random.choice(
            ("[redacted]", "[redacted]", None, self.guess(), "quite another secret", 7)
        )
        if kept is not None:
            payload["password"] = kept
        if self._random.random() < 0.3:
            payload["token"] = self._random.choice(("[redacted]", f"Bearer {self.guess()}"))
        return payload

    def _filter(self) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        names = ("q", "dedupe_key", "correlation_id", "status", "definition", "payload_contains", "payload")
        for name in self._random.sample(names, 2):
            known = {
                "status": self._random.choice(STATUSES),
                "definition": "secretive",
                "payload_contains": self._contained(),
                "payload": json.dumps({"password": self._random.choice(SECRETS)}),
            }
            asked[name] = known.get(name) or self._key()[:200]
        return asked

    def _contained(self) -> str:
        """Values to compare with those of a payload: even the whole secret does not find it."""
        secret = self._random.choice((*SECRETS, self.guess()))
        beside = {"note": "plain"} if self._random.random() < 0.5 else {}
        return json.dumps({self._random.choice(("password", "token", "note")): secret} | beside)

    def _list(self) -> Sent:
        page: dict[str, Any] = {
            "limit": self._random.choice((1, 5, 20)),
            "offset": self._random.choice((0, 0, 3)),
        }
        if self._random.random() < 0.2:
            page["cursor"] = self._job()
        return Sent("GET", "/jobs", {"params": self._filter() | page})

    def _look(self) -> Sent:
        what = self._random.choice(
            ("", "", "/attempts", "/logs", "/logs?strip_ansi", "/logs?limit=1", "/why")
        )
        return Sent("GET", f"/jobs/{self._job()}{what}")

    def _retry(self) -> Sent:
        body: Any = {"payload": self._payload()}
        if self._random.random() < 0.3:
            body = self._random.choice((None, {"payload": None}, {"payload": self.guess()}))
        return Sent("POST", f"/jobs/{self._job()}/retry", {"json": body})

    def _edit(self) -> Sent:
        body: dict[str, Any] = {"payload": self._payload()} if self._random.random() < 0.8 else {}
        if self._random.random() < 0.3:
            body["priority"] = self._random.randrange(5)
        return Sent("PATCH", f"/jobs/{self._job()}", {"json": body})

    def _cancel(self) -> Sent:
        return Sent("POST", f"/jobs/{self._job()}/cancel")

    def _new(self) -> dict[str, Any]:
        new: dict[str, Any] = {"definition_key": "secretive", "payload": self._payload()}
        for name in ("dedupe_key", "correlation_id"):
            if self._random.random() < 0.4:
                new[name] = self._key()
        return new

    def _enqueue(self) -> Sent:
        key = {"Idempotency-Key": self.guess().encode("ascii", "replace").decode()}
        return Sent(
            "POST", "/jobs", {"json": self._new(), "headers": key if self._random.random() < 0.3 else {}}
        )

    def _enqueue_many(self) -> Sent:
        return Sent("POST", "/jobs/bulk", {"json": {"jobs": [self._new() for _ in range(3)]}})

    def _change_many(self) -> Sent:
        body = {"filter": self._filter(), "dry_run": self._random.random() < 0.7, "limit": 5}
        return Sent("POST", self._random.choice(("/jobs/cancel", "/jobs/retry")), {"json": body})

    def _overview(self) -> Sent:
        plain = (
            "/jobs/summary",
            "/jobs/times",
            "/definitions",
            "/usage",
            "/me",
            "/audit?limit=20",
            "/quotas",
        )
        return Sent("GET", self._random.choice(plain))

    def _page(self) -> Sent:
        job = self._job()
        paths = (
            "/jobs",
            f"/jobs/{job}",
            f"/jobs/{job}",
            f"/jobs/{job}/log",
            f"/jobs/{job}/log.txt",
            f"/jobs/{job}/edit",
            f"/enqueue?copy={job}",
            "/errors?status=failed",
            "/audit",
        )
        path = self._random.choice(paths)
        return Sent("GET", path, {"params": {"q": self._key()[:200]}} if path == "/jobs" else {}, page=True)

    def _page_form(self) -> Sent:
        form = {"payload_way": "raw", "payload_text": json.dumps(self._payload())}
        job = self._job()
        path, data = self._random.choice(
            (
                (f"/jobs/{job}/edit", form),
                (f"/jobs/{job}/edit", form | {"show": "1"}),
                (f"/jobs/{job}/edit", form | {"waiting": "1", "priority": "3"}),
                ("/enqueue?definition=secretive", form | {"dedupe_key": self._key()}),
                (f"/jobs/{job}/retry", {}),
                ("/bulk-jobs/retry/selected", {"ids": job}),
            )
        )
        return Sent("POST", path, {"data": data, "headers": {"Sec-Fetch-Site": "same-origin"}}, page=True)


def echo(
    ctx: Context,
    password: Annotated[str, Secret()],
    token: Annotated[str | None, Secret()] = None,
    note: Any = None,
    how: int = 0,
) -> Any:
    """Says its secret, beside what others chose, in every way that a job can say something."""
    said = f"{note}{password}{note}{token}"
    ctx.progress(50, said)
    ctx.log.info(said, also=said)
    match how:
        case 0:
            return {"said": said, said: [password, note]}
        case 1:
            raise ValueError(said)
        case 2:
            raise Fatal(said)
        case 3:
            raise type(said.replace("\0", ""), (Exception,), {})(said)
        case 4:
            return said
        case _:
            raise RuntimeError(note) from KeyError(note, password)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without a line of log for each request: to write them takes longer than to answer."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
async def sides(world: World, quiet: None) -> list[Side]:
    world.fl.job(key="secretive", max_attempts=1)(echo)
    await published(world.fl)
    found = [Side(world, *one) for one in zip(sorted(world.tenants), SECRETS, strict=True)]
    for side in found:
        await side.prepare()
        await side.learn_jobs()
    return found


async def let_run(world: World, sides: list[Side], chosen: tuple[Any, int]) -> None:
    """The application has its say, and jobs run: one after the other, so that both tenants have the same history."""
    for side in sides:
        await side.bring(*chosen)
    await trigger_due(world.fl.database)
    while (await world.fl.tick(1)).ran:
        pass
    for side in sides:
        await side.learn_jobs()


def first_difference(one: str, other: str) -> str:
    at = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    part = slice(max(0, at - 200), at + 200)
    return f"is answered with\n{one[part]}\nand with\n{other[part]}"


async def test_no_request_of_an_operator_tells_two_secrets_apart(world: World, sides: list[Side]) -> None:
    asker = Asker(SEED)
    masked = 0
    for number in range(REQUESTS // 2):
        if number % TURN == 0:
            await let_run(world, sides, asker.chosen())
        sent = asker.next()
        one, other = await asyncio.gather(*(side.ask(sent) for side in sides))
        if one != other:
            pytest.fail(f"request {number} of seed {SEED}, {sent}, {first_difference(one, other)}")
        masked += "[redacted]" in one
    assert masked > REQUESTS // 50, "secrets were there to be found"


async def test_a_secret_that_is_the_mask_is_refused(world: World) -> None:
    schema = {"properties": {"password": {"type": "string", "x-secret": True}, "note": {"type": "string"}}}
    await world.call(
        "POST", "/admin/jobs/definitions", who="super_admin", json={"key": "masked", "arg_schema": schema}
    )
    job = {"definition_key": "masked", "payload": {"password": "[redacted]"}}

    one = await world.call("POST", "/jobs", json=job)
    many = await world.call("POST", "/jobs/bulk", json={"jobs": [job]})

    for answer in (one, many):
        assert (answer.status_code, answer.json()["code"]) == (422, "secrets_required")
    assert one.json()["errors"][0]["path"] == "/password"
    plain = {**job, "payload": {"password": "12345678", "note": "[redacted]"}}
    assert await world.status("POST", "/jobs", json=plain) == 201
