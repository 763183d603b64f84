"""EMAIL_SEND against servers that really listen."""

import base64
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.handlers import built_in
from fairlead.handlers.email import Emails
from fairlead.model.outcome import Failed, Outcome, Snoozed, Succeeded
from fairlead.settings import Settings
from tests.handlers.attempts import context, outcome_of, output
from tests.handlers.loopback import closed_port
from tests.handlers.mail_servers import (
    API_KEY,
    CLIENT_SECRET,
    PASSWORD,
    USER,
    graph,
    graph_error,
    mail_server,
    resend,
    resend_error,
)
from tests.tables import each_case

FROM = "Acme <no-reply@acme.example>"
# a line break, to whoever decodes it
ENCODED = "=?utf-8?q?x=0D=0AFrom:_eve=40example.com?="
HELLO = {"to": "ada@example.com", "subject": "Hello", "text": "How are you?"}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    monkeypatch.setenv("RESEND_KEY", API_KEY)
    monkeypatch.setenv("GRAPH_SECRET", CLIENT_SECRET)


def smtp(port: int, **more: Any) -> dict[str, Any]:
    return {"provider": "smtp", "from": FROM, "host": "127.0.0.1", "port": port, "tls": "none", **more}


def by_resend(url: str, **more: Any) -> dict[str, Any]:
    return {"provider": "resend", "from": FROM, "api_key": "env:RESEND_KEY", "api_url": url, **more}


def by_graph(url: str, **more: Any) -> dict[str, Any]:
    secret = {"client_id": "app-1", "client_secret": "env:GRAPH_SECRET", "directory_id": "dir-1"}
    return {"provider": "graph", "from": FROM, "api_url": url, "login_url": url, **secret, **more}


def emails(said: Mapping[str, Any]) -> Emails:
    [(send, options)] = built_in.load_builtins(Settings(), {"email": said})
    assert options["audit_action"] == "EMAIL_SENT"
    return send.__self__  # type: ignore[attr-defined, no-any-return]


async def sent(by: Emails | Mapping[str, Any], payload: Mapping[str, Any] = HELLO, **facts: Any) -> Outcome:
    by = by if isinstance(by, Emails) else emails(by)
    return await outcome_of(by.send, ctx=context(dict(payload), **facts))


def failed(outcome: Outcome, kind: str, *, retryable: bool) -> str:
    assert isinstance(outcome, Failed), outcome
    assert (outcome.kind, outcome.retryable) == (kind, retryable), outcome
    shown = f"{outcome.message} {outcome.traceback}"
    for secret in ("ada@example.com", PASSWORD, API_KEY, CLIENT_SECRET, "How are you?"):
        assert secret not in shown
    return outcome.message


# SMTP


async def test_a_message_goes_over_smtp_as_it_was_written() -> None:
    ctx = context()
    payload = {
        "to": ["Ada Lovelace <ada@example.com>", '"Babbage, Charles" <charles@example.com>'],
        "cc": "Grâce <grace@example.com>",
        "bcc": ["secret@example.com", "ada@example.com"],
        "reply_to": "desk@acme.example",
        "subject": "Grüße",
        "text": "Schöner Text\n.\nmit Punkt",
        "html": "<p>Schön</p>",
        "headers": {"List-Unsubscribe": "<https://acme.example/u>", "X-Own": "ja"},
        "attachments": [
            {
                "filename": "ä.pdf",
                "content": base64.b64encode(b"%PDF\x00").decode(),
                "content_type": "application/pdf",
            }
        ],
    }
    async with mail_server() as server:
        outcome = await sent(smtp(server.port), payload, job_id=ctx.job_id)

    known_as = f"<{ctx.job_id}@acme.example>"
    assert output(outcome) == {"provider": "smtp", "message_id": known_as, "accepted": 4, "refused": 0}
    [envelope], [message] = server.envelopes, server.messages
    assert envelope.mail_from == "no-reply@acme.example"
    assert envelope.rcpt_tos == [f"{name}@example.com" for name in ("ada", "charles", "grace", "secret")]
    assert (message["Message-ID"], message["Subject"], message["X-Own"]) == (known_as, "Grüße", "ja")
    assert message["From"].addresses[0].display_name == "Acme"
    assert [one.display_name for one in message["To"].addresses] == ["Ada Lovelace", "Babbage, Charles"]
    assert message["Cc"].addresses[0].display_name == "Grâce"
    assert (message["Reply-To"], message["Bcc"]) == ("desk@acme.example", None)
    assert b"secret@example.com" not in bytes(message)
    text, html = message.get_body(("plain",)), message.get_body(("html",))
    assert text is not None
    assert html is not None
    assert text.get_content().splitlines() == ["Schöner Text", ".", "mit Punkt"]
    assert html.get_content().strip() == "<p>Schön</p>"
    [file] = message.iter_attachments()
    assert (file.get_filename(), file.get_content_type(), file.get_content()) == (
        "ä.pdf",
        "application/pdf",
        b"%PDF\x00",
    )


async def test_a_second_attempt_has_the_same_message_id() -> None:
    ctx = context()
    async with mail_server({"DATA": "cut"}) as server:
        lost = await sent(smtp(server.port), job_id=ctx.job_id)
        server.says = {}
        for attempt_no in (2, 3):
            output(await sent(smtp(server.port), job_id=ctx.job_id, attempt_no=attempt_no))
    failed(lost, "TemporaryFailure", retryable=True)
    assert len({message["Message-ID"] for message in server.messages}) == 1


@each_case(
    ("said", "kind", "retryable"),
    [
        ({"DATA": "554 5.7.1 spam from ada@example.com"}, "PermanentFailure", False),
        ({"DATA": "451 4.3.0 later"}, "TemporaryFailure", True),
        ({"ada@example.com": "550 5.1.1 <ada@example.com> unknown"}, "PermanentFailure", False),
        ({"ada@example.com": "450 4.2.0 greylisted"}, "TemporaryFailure", True),
    ],
)
async def test_a_5xx_is_for_good_and_a_4xx_is_not(
    said: dict[str, str], kind: str, *, retryable: bool
) -> None:
    async with mail_server(said) as server:
        message = failed(await sent(smtp(server.port)), kind, retryable=retryable)
    assert next(iter(said.values()))[:3] in message


async def test_one_recipient_who_is_refused_does_not_keep_the_others_from_it() -> None:
    async with mail_server({"gone@example.com": "550 no"}) as server:
        outcome = await sent(smtp(server.port), {**HELLO, "cc": "gone@example.com"})
        both = {**HELLO, "to": ["gone@example.com", "later@example.com"]}
        server.says["later@example.com"] = "450 later"
        mixed = await sent(smtp(server.port), both)
    assert (output(outcome)["accepted"], output(outcome)["refused"]) == (1, 1)
    failed(mixed, "TemporaryFailure", retryable=True)


async def test_a_server_that_is_away_is_tried_again() -> None:
    with closed_port() as port:
        failed(await sent(smtp(port)), "TemporaryFailure", retryable=True)


async def test_a_password_is_given_and_a_wrong_one_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mail_server(auth=True) as server:
        by = emails(smtp(server.port, username=USER, password="env:MAIL_PASSWORD"))  # noqa: S106
        output(await sent(by))
        monkeypatch.setenv("MAIL_PASSWORD", "other")
        assert "535" in failed(await sent(by), "PermanentFailure", retryable=False)
        monkeypatch.delenv("MAIL_PASSWORD")
        message = failed(await sent(by), "TemporaryFailure", retryable=True)
    assert message == "A secret of smtp cannot be read: the variable MAIL_PASSWORD is not set."


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    argv = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=mail"
    argv += f" -addext subjectAltName=IP:127.0.0.1 -keyout {path} -out {path}.cert"
    subprocess.run(argv.split(), check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.cert").read_bytes())
    return path


@pytest.mark.parametrize("tls", ["starttls", "tls"])
async def test_the_connection_is_encrypted_and_the_certificate_checked(
    tls: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    async with mail_server(tls=server_side, whole=tls == "tls") as server:
        failed(await sent(smtp(server.port, tls=tls)), "TemporaryFailure", retryable=True)
        assert server.envelopes == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        output(await sent(smtp(server.port, tls=tls)))
    assert server.encrypted == [True]


async def test_without_the_encryption_that_was_asked_for_nothing_is_sent() -> None:
    async with mail_server() as server:
        failed(await sent(smtp(server.port, tls="starttls")), "TemporaryFailure", retryable=True)
    assert server.envelopes == []


# What may be sent


@each_case(
    "more",
    [
        {"to": "ada@example.com\r\nBcc: x@example.com"},
        {"to": "ada@example.com, eve@example.com"},
        {"to": "Ada\n <ada@example.com>"},
        {"to": 'A" <eve@example.com>, "B <ada@example.com>'},
        {"to": "<ada@example.com> SIZE=1"},
        {"to": "ada@exa mple.com"},
        {"to": "ada"},
        {"to": "ada@-x.com"},
        {"to": "ädä@example.com"},
        {"to": "a" * 65 + "@example.com"},
        {"to": []},
        {"cc": ["ada@example.com", "x\x00@example.com"]},
        {"bcc": [f"a{n}@example.com" for n in range(50)]},
        {"reply_to": "a@example.com\r\nX: y"},
        {"subject": "a\r\nBcc: eve@example.com"},
        {"subject": "a\u2028b"},
        {"subject": "a\x00"},
        {"subject": f"a {ENCODED} b"},
        {"to": f"{ENCODED} <ada@example.com>"},
        {"to": ["=?utf-8?q?x=0D=0ABcc:_eve=40example.com <ada@example.com>", "y?= <bob@example.com>"]},
        {"reply_to": f'"{ENCODED}" <ada@example.com>'},
        {"headers": {"X-A": ENCODED}},
        {"headers": {"References": f"<1@example.com> {ENCODED}"}},
        {"attachments": [{"filename": ENCODED, "content": ""}]},
        {"headers": {"X-A": "a\nBcc: eve@example.com"}},
        {"headers": {"X-A\r\nBcc": "eve@example.com"}},
        {"headers": {"X-A:": "b"}},
        {"headers": {"Bcc": "eve@example.com"}},
        {"headers": {"content-type": "text/html"}},
        {"headers": {"Resent-To": "eve@example.com"}},
        {"headers": {"X-A": "b", "x-a": "c"}},
        {"headers": {f"X-{n}": "" for n in range(21)}},
        {"text": ""},
        {"attachments": [{"filename": "../x", "content": ""}]},
        {"attachments": [{"filename": "x\r\ny", "content": ""}]},
        {"attachments": [{"filename": "x", "content": "not base64!"}]},
        {"attachments": [{"filename": "x", "content": "", "content_type": "message/rfc822"}]},
        {"attachments": [{"filename": "x", "content": "", "content_type": "a/b\r\nX: y"}]},
        {"attachments": [{"filename": "x", "content": base64.b64encode(b"x" * 5_300_000).decode()}] * 2},
    ],
)
async def test_what_could_say_more_than_it_seems_to_is_refused(more: dict[str, Any]) -> None:
    async with mail_server() as server:
        outcome = await sent(smtp(server.port), {**HELLO, **more})
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.retryable) == ("MessageRefused", False), outcome
    assert "eve@" not in outcome.message
    assert server.envelopes == []


# Secrets


async def test_secrets_take_their_places_and_are_escaped_in_html() -> None:
    payload = {
        **HELLO,
        "text": "https://acme.example/#[[code]] [[code]] and [[other]]",
        "html": "<p>[[code]]</p>",
        "secrets": {"code": "<s3cret&code>", "other": "[[code]]"},
    }
    async with mail_server() as server:
        output(await sent(smtp(server.port), payload))
        output(await sent(smtp(server.port), {**HELLO, "text": "[[code]] stays"}))

    [text, html], [plain] = [
        [part for part in one.walk() if not part.is_multipart()] for one in server.messages
    ]
    assert text.get_content().strip() == "https://acme.example/#<s3cret&code> <s3cret&code> and [[code]]"
    assert html.get_content().strip() == "<p>&lt;s3cret&amp;code&gt;</p>"
    assert plain.get_content().strip() == "[[code]] stays"


async def test_a_place_without_its_secret_is_not_sent() -> None:
    payload = {**HELLO, "text": "Your code: [[code]]", "secrets": {}}
    async with mail_server() as server:
        outcome = await sent(smtp(server.port), payload)

    assert failed(outcome, "MessageRefused", retryable=False) == (
        "The message cannot be sent: text has [[code]], which is not in secrets."
    )
    assert server.envelopes == []


async def test_only_the_platform_uses_the_provider_of_another_tenant() -> None:
    async with mail_server() as mine, mail_server() as theirs:
        by = emails({**smtp(mine.port), "tenants": {"globex": {"port": theirs.port}}})
        borrowed = await sent(by, {**HELLO, "provider_of": "globex"}, tenant="acme")
        own = await sent(by, {**HELLO, "provider_of": "globex"}, tenant="globex")
        output(await sent(by, {**HELLO, "provider_of": "globex"}, tenant="global"))
        output(await sent(by, {**HELLO, "provider_of": "initech"}, tenant="global"))

    assert failed(borrowed, "MessageRefused", retryable=False).startswith("provider_of is only for jobs")
    output(own)
    assert (len(theirs.envelopes), len(mine.envelopes)) == (2, 1)


# Resend


async def test_resend_is_told_the_message_and_its_id_kept() -> None:
    payload: dict[str, Any] = {
        **HELLO,
        "bcc": "Eve <eve@example.com>",
        "html": "<p>x</p>",
        "headers": {"X-Own": "ja"},
    }
    payload["attachments"] = [{"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}]
    async with resend() as (fake, server):
        outcome = await sent(by_resend(server.url), payload)

    assert output(outcome) == {
        "provider": "resend",
        "message_id": next(iter(fake.by_key.values()))[1],
        "accepted": 2,
        "refused": 0,
    }
    assert fake.sent == [
        {
            "from": FROM,
            "to": ["ada@example.com"],
            "bcc": ["Eve <eve@example.com>"],
            "subject": "Hello",
            "text": "How are you?",
            "html": "<p>x</p>",
            "headers": {"X-Own": "ja"},
            "attachments": payload["attachments"],
        }
    ]


async def test_an_attempt_after_a_lost_answer_does_not_send_twice() -> None:
    ctx = context()
    async with resend() as (fake, server):
        fake.lose = 1
        lost = await sent(by_resend(server.url), job_id=ctx.job_id)
        again = await sent(by_resend(server.url), job_id=ctx.job_id, attempt_no=3)
        changed = await sent(by_resend(server.url), {**HELLO, "text": "Other"}, job_id=ctx.job_id)
    failed(lost, "TemporaryFailure", retryable=True)
    assert len(fake.sent) == 1
    assert output(again)["message_id"] == fake.by_key[f"fairlead/{ctx.job_id}"][1]
    assert "invalid_idempotent_request" in failed(changed, "PermanentFailure", retryable=False)


@each_case(
    ("reply", "kind", "retryable"),
    [
        (resend_error(422, "validation_error"), "PermanentFailure", False),
        (resend_error(403, "invalid_from_address"), "PermanentFailure", False),
        (resend_error(409, "concurrent_idempotent_requests"), "TemporaryFailure", True),
        (resend_error(429, "daily_quota_exceeded"), "TemporaryFailure", True),
        (resend_error(500, "internal_server_error"), "TemporaryFailure", True),
    ],
)
async def test_what_resend_refuses_for_good_is_not_tried_again(
    reply: Any, kind: str, *, retryable: bool
) -> None:
    async with resend() as (fake, server):
        fake.instead = [reply]
        message = failed(await sent(by_resend(server.url)), kind, retryable=retryable)
    assert f"Resend answered {reply.status}" in message


async def test_resend_says_when_to_ask_again() -> None:
    async with resend() as (fake, server):
        fake.instead = [resend_error(429, "rate_limit_exceeded", retry_after="3")]
        assert await sent(by_resend(server.url)) == Snoozed(3.0)
        output(await sent(by_resend(server.url)))


async def test_a_wrong_key_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESEND_KEY", "re_wrong")
    async with resend() as (_, server):
        message = failed(await sent(by_resend(server.url)), "PermanentFailure", retryable=False)
    assert "invalid_api_key" in message


# Microsoft Graph


async def test_graph_is_told_the_message_with_a_token_that_serves_again() -> None:
    payload: dict[str, Any] = {
        **HELLO,
        "bcc": "Eve <eve@example.com>",
        "html": "<p>x</p>",
        "headers": {"X-Own": "ja"},
    }
    payload["attachments"] = [{"filename": "a.txt", "content": "YQ==", "content_type": "text/plain"}]
    async with graph() as (fake, server):
        by = emails(by_graph(server.url))
        outcome = await sent(by, payload)
        output(await sent(by))

    assert output(outcome) == {"provider": "graph", "message_id": "request-1", "accepted": 2, "refused": 0}
    assert fake.given == 1
    assert fake.sent[0] == {
        "saveToSentItems": False,
        "message": {
            "subject": "Hello",
            "body": {"contentType": "HTML", "content": "<p>x</p>"},
            "from": {"emailAddress": {"address": "no-reply@acme.example", "name": "Acme"}},
            "toRecipients": [{"emailAddress": {"address": "ada@example.com"}}],
            "bccRecipients": [{"emailAddress": {"address": "eve@example.com", "name": "Eve"}}],
            "internetMessageHeaders": [{"name": "X-Own", "value": "ja"}],
            "attachments": [
                {
                    "@odata.type": "#microsoft.graph.fileAttachment",
                    "name": "a.txt",
                    "contentType": "text/plain",
                    "contentBytes": "YQ==",
                }
            ],
        },
    }


async def test_a_token_that_is_not_taken_is_replaced_once() -> None:
    async with graph() as (fake, server):
        by = emails(by_graph(server.url))
        output(await sent(by))
        fake.valid.clear()
        output(await sent(by))
        assert fake.given == 2
        fake.instead = [graph_error(401, "InvalidAuthenticationToken")] * 2
        failed(await sent(by), "PermanentFailure", retryable=False)
    assert (fake.given, len(fake.sent)) == (3, 2)


async def test_a_token_near_its_end_is_renewed_before_it_is_used() -> None:
    async with graph() as (fake, server):
        fake.lasts = 59
        by = emails(by_graph(server.url))
        output(await sent(by))
        output(await sent(by))
    assert fake.given == 2


async def test_graphs_throttling_and_refusals_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with graph() as (fake, server):
        by = emails(by_graph(server.url))
        fake.instead = [
            graph_error(429, "ApplicationThrottled", retry_after="11"),
            graph_error(503, "ServiceUnavailable"),
            graph_error(400, "ErrorInvalidRecipients"),
        ]
        assert await sent(by) == Snoozed(11.0)
        failed(await sent(by), "TemporaryFailure", retryable=True)
        failed(await sent(by), "PermanentFailure", retryable=False)
        refused = await sent(by, {**HELLO, "headers": {"List-Id": "x"}})
        monkeypatch.setenv("GRAPH_SECRET", "wrong")
        wrong = await sent(emails(by_graph(server.url)))
    failed(refused, "MessageRefused", retryable=False)
    assert "invalid_client" in failed(wrong, "PermanentFailure", retryable=False)
    assert fake.sent == []


# Tenants


async def test_a_tenant_may_have_a_provider_of_its_own() -> None:
    async with mail_server() as server, resend() as (fake, api):
        said = smtp(server.port)
        said["tenants"] = {"acme": by_resend(api.url), "other": {"from": "other@other.example"}}
        by = emails(said)
        assert output(await sent(by, tenant="acme"))["provider"] == "resend"
        assert output(await sent(by, tenant="other"))["provider"] == "smtp"
        assert output(await sent(by, tenant="third"))["provider"] == "smtp"
        alone = emails({"tenants": {"acme": by_resend(api.url)}})
        failed(await sent(alone, tenant="third"), "MessageRefused", retryable=False)
    assert [one.mail_from for one in server.envelopes] == ["other@other.example", "no-reply@acme.example"]
    assert len(fake.sent) == 1


async def test_sending_says_nothing_in_the_log(capfd: pytest.CaptureFixture[str], caplog: Any) -> None:
    caplog.set_level("INFO")
    async with mail_server() as server, resend() as (_, api), graph() as (_, other):
        for said in (smtp(server.port), by_resend(api.url), by_graph(other.url)):
            ctx = context(dict(HELLO))
            assert isinstance(await outcome_of(emails(said).send, ctx=ctx), Succeeded)
            assert ctx.kept_log() == ""
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if not record.name.startswith("mail")] == []
