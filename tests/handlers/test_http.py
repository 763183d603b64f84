import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.handlers.http import HttpRequests
from fairlead.handlers.http_failures import MOST_SNOOZES
from fairlead.model.messages.http_call import Call, HttpTarget, parse_target
from fairlead.model.messages.network import Allowed
from fairlead.model.messages.webhook import decode_key, sign_webhook
from fairlead.model.outcome import Failed, Outcome, Snoozed
from fairlead.model.template.path import Flaw
from tests.handlers.attempts import context, outcome_of, output
from tests.handlers.loopback import Asked, Reply, always, closed_port, in_turn, serving
from tests.tables import each_case

LOCAL = Allowed.of(["127.0.0.0/8"])
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105


def names(**hosts: str | list[str]) -> Callable[[str, str, int], Any]:
    """A resolver that knows these names (with _ for .); what is looked up a second time has its next address."""
    left = {
        name.replace("_", "."): list(given) if isinstance(given, list) else [given]
        for name, given in hosts.items()
    }

    async def resolve(tenant: str, host: str, port: int) -> list[str]:
        if host not in left:
            return [host]
        known = left[host]
        return [known.pop(0) if len(known) > 1 else known[0]]

    return resolve


async def asked_for(payload: dict[str, Any], *, allowed: Allowed = LOCAL, **options: Any) -> Outcome:
    more = {name: options.pop(name) for name in ("attempt_no", "job_id", "tenant") if name in options}
    ctx = context(payload, **more)
    return await outcome_of(HttpRequests(allowed, **options).request, ctx=ctx)


def failed(outcome: Outcome, kind: str, *, retryable: bool) -> str:
    assert isinstance(outcome, Failed), outcome
    assert (outcome.kind, outcome.retryable) == (kind, retryable), outcome
    return outcome.message


async def test_a_request_is_made_as_asked_and_its_answer_kept() -> None:
    reply = Reply(201, {"made": [1]}, (("x-thing", "a"), ("x-thing", "b"), ("set-cookie", "id=s3cret")))
    async with serving(always(reply)) as server:
        outcome = await asked_for(
            {
                "url": f"{server.url}/things?q=ä b".replace(" ", "%20"),
                "method": "POST",
                "headers": {"X-Own": "yes"},
                "secret_headers": {"Authorization": "Bearer t"},
                "body": {"n": 1},
            }
        )

    assert output(outcome) == {
        "status": 201,
        "headers": {"content-length": "12", "content-type": "application/json", "x-thing": "a, b"},
        "body": {"made": [1]},
        "truncated": False,
    }
    [asked] = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/things?q=%C3%A4%20b", b'{"n":1}')
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["content-type"] == "application/json"
    assert (asked.headers["x-own"], asked.headers["authorization"]) == ("yes", "Bearer t")


async def test_text_is_sent_as_it_is_and_kept_as_text() -> None:
    async with serving(always(Reply(200, b"h\xc3\xa9!\x01"))) as server:
        outcome = await asked_for({"url": server.url, "method": "PUT", "body": "hé"})

    assert server.asked[0].body == "hé".encode()
    assert server.asked[0].headers["content-type"] == "text/plain; charset=utf-8"
    assert output(outcome)["body"] == "hé!\ufffd"


async def test_a_long_answer_is_cut_while_it_is_read() -> None:
    async with serving(always(Reply(200, b"x" * 10_000_000))) as server:
        outcome = await asked_for({"url": server.url, "max_response_bytes": 100})

    assert (output(outcome)["body"], output(outcome)["truncated"]) == ("x" * 100, True)


async def test_json_that_cannot_be_kept_is_text() -> None:
    deep = b"[" * 100 + b"]" * 100
    async with serving(always(Reply(200, deep, (("content-type", "application/json"),)))) as server:
        assert output(await asked_for({"url": server.url}))["body"] == deep.decode()


@each_case("reply", [Reply(200, b"\x00\x01"), Reply(200, b"zip", (("content-encoding", "gzip"),))])
async def test_what_is_not_text_is_not_kept(reply: Reply) -> None:
    async with serving(always(reply)) as server:
        assert output(await asked_for({"url": server.url}))["body"] is None


async def test_only_an_expected_status_is_a_success() -> None:
    async with serving(always(Reply(404, b"nothing here"))) as server:
        assert output(await asked_for({"url": server.url, "expected_status": 404}))["status"] == 404
        assert output(await asked_for({"url": server.url, "expected_status": [200, 404]}))["status"] == 404
        message = failed(await asked_for({"url": server.url}), "PermanentFailure", retryable=False)
    assert message == "127.0.0.1 answered 404: nothing here"


@each_case("status", [408, 425, 429, 500, 503])
async def test_a_busy_server_is_asked_again(status: int) -> None:
    async with serving(always(Reply(status))) as server:
        failed(await asked_for({"url": server.url}), "TemporaryFailure", retryable=True)


async def test_a_server_says_when_to_ask_again_but_not_for_ever() -> None:
    async with serving(always(Reply(429, headers=(("retry-after", "7"),)))) as server:
        assert await asked_for({"url": server.url}) == Snoozed(7.0)
        worn_out = await asked_for({"url": server.url}, attempt_no=MOST_SNOOZES + 1)
    failed(worn_out, "TemporaryFailure", retryable=True)


async def test_trouble_on_the_way_is_tried_again() -> None:
    async with serving(always(None)) as server:
        failed(await asked_for({"url": server.url}), "TemporaryFailure", retryable=True)
    with closed_port() as port:
        url = f"http://127.0.0.1:{port}"
        message = failed(await asked_for({"url": url}), "TemporaryFailure", retryable=True)
    assert "could not be reached" in message

    async def unknown(tenant: str, host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    message = failed(
        await asked_for({"url": "http://nowhere.example"}, resolve=unknown),
        "TemporaryFailure",
        retryable=True,
    )
    assert message == "nowhere.example could not be resolved: Name or service not known"


async def test_a_server_that_does_not_answer_in_time_is_asked_again() -> None:
    silent = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        outcome = await asked_for({"url": url, "timeout_seconds": 0.1})
        silent.set()
    assert failed(outcome, "TemporaryFailure", retryable=True) == "127.0.0.1 did not answer within 0.1 s"


# Where it may go


@each_case(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://[::]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0x7f.1/",
        "http://private.example/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://user:password@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://example.com:0/",
        "http://exa mple.com/",
        "http:///",
        "http://ex\u00e4mple.com/",
    ],
)
async def test_nothing_that_is_not_public_is_reached(url: str) -> None:
    resolve = names(localhost="127.0.0.1", private_example="192.168.1.1")
    message = failed(
        await asked_for({"url": url}, allowed=Allowed(), resolve=resolve), "RequestRefused", retryable=False
    )
    assert "password" not in message.replace("user or password", "")


async def test_the_systems_own_resolver_is_checked_too() -> None:
    async with serving(always(Reply())) as server:
        url = f"http://localhost:{server.port}"
        failed(await asked_for({"url": url}, allowed=Allowed()), "RequestRefused", retryable=False)
        assert server.asked == []
        output(await asked_for({"url": url}, allowed=Allowed.of(["localhost"])))


async def test_a_name_with_one_private_address_is_refused() -> None:
    async def resolve(tenant: str, host: str, port: int) -> list[str]:
        return ["93.184.216.34", "10.0.0.1"]

    outcome = await asked_for({"url": "http://mixed.example"}, allowed=Allowed(), resolve=resolve)
    failed(outcome, "RequestRefused", retryable=False)


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name means a permitted address first and a forbidden one ever after."""
    permitted = Allowed.of(["127.0.0.2/32"])
    resolve = names(rebound_example=["127.0.0.2", "127.0.0.1"])
    async with (
        serving(always(Reply(200, b"good")), host="127.0.0.2") as good,
        serving(always(Reply(200, b"evil")), port=good.port) as evil,
    ):
        payload = {"url": f"http://rebound.example:{good.port}/"}
        outcome = await asked_for(payload, allowed=permitted, resolve=resolve)
        again = await asked_for(payload, allowed=permitted, resolve=resolve)

    assert output(outcome)["body"] == "good"
    assert good.asked[0].headers["host"] == f"rebound.example:{good.port}"
    failed(again, "RequestRefused", retryable=False)
    assert evil.asked == []


async def test_the_next_address_is_asked_where_one_is_not_reached() -> None:
    async def resolve(tenant: str, host: str, port: int) -> list[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with serving(always(Reply(200, b"here"))) as server:
        outcome = await asked_for({"url": f"http://two.example:{server.port}"}, resolve=resolve)
    assert output(outcome)["body"] == "here"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(always(Reply(200, b"proxy"))) as proxy, serving(always(Reply(200, b"here"))) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        assert output(await asked_for({"url": server.url}))["body"] == "here"
    assert proxy.asked == []


async def test_tls_asks_for_the_names_certificate_at_the_address(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    argv = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=tls.example"
    )
    argv += f" -addext subjectAltName=DNS:tls.example -keyout {key} -out {cert}"
    await asyncio.to_thread(subprocess.run, argv.split(), check=True, capture_output=True)
    asked_names: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    tls.sni_callback = lambda _socket, name, _context: asked_names.append(name)
    trust = ssl.create_default_context(cafile=str(cert))
    resolve = names(tls_example="127.0.0.1", other_example="127.0.0.1")

    async with serving(always(Reply(200, b"safe")), tls=tls) as server:
        url = f"https://tls.example:{server.port}"
        assert output(await asked_for({"url": url}, resolve=resolve, trust=trust))["body"] == "safe"
        url = f"https://other.example:{server.port}"
        message = failed(
            await asked_for({"url": url}, resolve=resolve, trust=trust), "TemporaryFailure", retryable=True
        )
    assert asked_names == ["tls.example", "other.example"]
    assert "certificate" in message.lower()


# Redirects


def to(location: str, status: int = 302) -> Reply:
    return Reply(status, headers=(("location", location),))


async def test_a_redirect_is_followed_with_what_the_host_may_know() -> None:
    payload = {"method": "POST", "body": "b", "secret_headers": {"X-Key": "s"}, "headers": {"accept": "a/b"}}
    async with serving(in_turn(to("/next", 307), to("?n=2", 303), Reply(200, b"end"))) as server:
        outcome = await asked_for(payload | {"url": f"{server.url}/first", "signing_secret": SECRET})

    assert output(outcome)["body"] == "end"
    first, second, third = server.asked
    assert [(one.method, one.path, one.body) for one in server.asked] == [
        ("POST", "/first", b"b"),
        ("POST", "/next", b"b"),
        ("GET", "/next?n=2", b""),
    ]
    assert second.headers == first.headers
    assert (third.headers["x-key"], third.headers["accept"]) == ("s", "a/b")
    assert not {"content-type", "webhook-id", "webhook-signature"} & third.headers.keys()


async def test_credentials_are_not_carried_to_another_host() -> None:
    payload = {
        "secret_headers": {"Authorization": "Bearer t"},
        "headers": {"X-Api-Key": "k", "Cookie": "c", "Accept": "a/b"},
        "method": "POST",
        "signing_secret": SECRET,
    }
    async with (
        serving(always(Reply(200, b"end"))) as other,
        serving(always(to(f"{other.url}/there", 308))) as server,
    ):
        output(await asked_for(payload | {"url": server.url}))

    [asked] = other.asked
    assert (asked.method, asked.body) == ("POST", b"")
    assert asked.headers["accept"] == "a/b"
    assert not [
        name
        for name in asked.headers
        if name in {"authorization", "cookie", "x-api-key"} or "webhook" in name
    ]


@each_case(("method", "status"), [("POST", 307), ("POST", 308), ("PUT", 302), ("PATCH", 301)])
async def test_a_body_is_not_sent_to_another_server(method: str, status: int) -> None:
    async with (
        serving(always(Reply(200, b"end"))) as other,
        serving(always(to(f"{other.url}/there", status))) as server,
    ):
        outcome = await asked_for({"url": server.url, "method": method, "body": {"n": 1}})

    assert "would receive the body" in failed(outcome, "RequestRefused", retryable=False)
    assert other.asked == []


def test_a_body_goes_along_from_http_to_https() -> None:
    call = Call("POST", parse_target("http://api.example/a"), {}, b"{}")

    assert call.follow_redirect(308, "https://api.example/a").content == b"{}"
    for location in ("https://api.example:8443/a", "https://other.example/a"):
        with pytest.raises(Flaw):
            call.follow_redirect(308, location)


@each_case(
    "location",
    ["http://127.0.0.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/", "//inner.example:{port}/", "file:///x"],
)
async def test_a_redirect_to_what_is_not_public_is_not_followed(location: str) -> None:
    permitted = Allowed.of(["127.0.0.2/32"])
    resolve = names(inner_example="127.0.0.1")
    async with serving(always(Reply(200, b"inner"))) as inner:
        answer = to(location.format(port=inner.port))
        async with serving(always(answer), host="127.0.0.2") as server:
            outcome = await asked_for({"url": server.url}, allowed=permitted, resolve=resolve)
    failed(outcome, "RequestRefused", retryable=False)
    assert inner.asked == []


@each_case("location", ["http://[", "//[::1", "http://x:port/", "http://a b/"])
async def test_a_redirect_that_is_no_url_is_refused_for_good(location: str) -> None:
    async with serving(always(to(location))) as server:
        message = failed(await asked_for({"url": server.url}), "RequestRefused", retryable=False)
    assert message.startswith("A redirect of 127.0.0.1 was refused: it ")
    assert location not in message


async def test_redirects_have_an_end() -> None:
    async with serving(always(to("/again"))) as server:
        message = failed(
            await asked_for({"url": server.url, "max_redirects": 3}), "PermanentFailure", retryable=False
        )
        assert (message, len(server.asked)) == ("127.0.0.1 answered 302", 4)
        assert output(await asked_for({"url": server.url, "expected_status": 302}))["status"] == 302


# Headers and signatures


@each_case(
    "headers",
    [
        {"X": "a\r\nY: b"},
        {"X\r\nY": "a"},
        {"X": "a\x00"},
        {"X": "\u00e9"},
        {"": "a"},
        {"Host": "x"},
        {"content-length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Proxy-Authorization": "x"},
        {"webhook-id": "x"},
        {"X": "a", "x": "b"},
        {f"X{n}": "" for n in range(51)},
        {"X": "a" * 16_384},
    ],
)
async def test_headers_that_would_say_more_than_a_header_are_refused(headers: dict[str, str]) -> None:
    async with serving(always(Reply())) as server:
        failed(await asked_for({"url": server.url, "headers": headers}), "RequestRefused", retryable=False)
        failed(
            await asked_for({"url": server.url, "secret_headers": headers}), "RequestRefused", retryable=False
        )
    assert server.asked == []


def check_signature(asked: Asked, job_id: Any) -> None:
    at = int(asked.headers["webhook-timestamp"])
    expected = sign_webhook(decode_key(SECRET), str(job_id), at, asked.body)
    assert {name: asked.headers[name] for name in expected} == expected


async def test_a_request_is_signed_with_the_same_id_at_every_attempt() -> None:
    ctx = context()

    def secret_named(tenant: str, name: str, _: HttpTarget) -> str | None:
        return SECRET if (tenant, name) == ("acme", "orders") else None

    payload = {"method": "POST", "body": {"order": 7}, "sign_with": "orders"}
    async with serving(always(Reply())) as server:
        for attempt_no in (1, 2):
            output(
                await asked_for(
                    payload | {"url": server.url},
                    job_id=ctx.job_id,
                    attempt_no=attempt_no,
                    secret_named=secret_named,
                )
            )
        other = await asked_for(payload | {"url": server.url}, tenant="other", secret_named=secret_named)
    for asked in server.asked:
        check_signature(asked, ctx.job_id)
    assert len(server.asked) == 2
    failed(other, "RequestRefused", retryable=False)


@each_case("secret", ["whsec_short", "no prefix", "whsec_" + "A" * 100, "whsec_ä"])
async def test_a_secret_that_cannot_sign_is_refused_and_not_told(secret: str) -> None:
    outcome = await asked_for({"url": "http://127.0.0.1:1", "signing_secret": secret})
    assert secret not in failed(outcome, "RequestRefused", retryable=False)
