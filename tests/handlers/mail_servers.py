"""Servers on loopback that behave as those of email providers: SMTP itself, and the documented parts of two APIs."""

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast
from urllib.parse import parse_qs
from uuid import uuid4

import msgspec
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

from tests.handlers.loopback import Asked, Reply, Server, serving

USER, PASSWORD = "mailer", "pass-w0rd"
API_KEY, CLIENT_SECRET = "re_s3cret", "client-s3cret"


class MailServer:
    """A real SMTP server. `says` answers RCPT (by address) and DATA instead of it, where a test wants that."""

    def __init__(self, says: dict[str, str]) -> None:
        self.says = says
        self.port = 0
        self.envelopes: list[Envelope] = []
        self.encrypted: list[bool] = []

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds it by this name
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if (said := self.says.get(address, "250 fine")).startswith("2"):
            envelope.rcpt_tos.append(address)
        return said

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        transport = server.transport
        assert isinstance(transport, asyncio.WriteTransport)
        if (said := self.says.get("DATA", "250 taken")).startswith("2"):
            self.envelopes.append(envelope)
            self.encrypted.append(transport.get_extra_info("ssl_object") is not None)
        if said == "cut":
            transport.abort()
        return said

    @property
    def messages(self) -> list[EmailMessage]:
        return [
            message_from_bytes(cast("bytes", one.content), policy=policy.default) for one in self.envelopes
        ]


@asynccontextmanager
async def mail_server(
    says: dict[str, str] | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    whole: bool = False,
    auth: bool = False,
) -> AsyncIterator[MailServer]:
    """With `tls` STARTTLS is offered, or with `whole` the connection is encrypted from its beginning."""
    mail = MailServer(says or {})

    def checked(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=good, handled=False)

    def made() -> SMTP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a password without TLS, which goes no further than loopback
            return _smtp()

    def _smtp() -> SMTP:
        return SMTP(
            mail,
            hostname="mail.example",
            tls_context=None if whole else tls,
            authenticator=checked if auth else None,
            auth_required=auth,
            auth_require_tls=False,
            loop=asyncio.get_running_loop(),
        )

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0, ssl=tls if whole else None)
    mail.port = server.sockets[0].getsockname()[1]
    async with server:
        yield mail


class FakeResend:
    """POST /emails: a key is good for one body, and gives the same id again for that."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.by_key: dict[str, tuple[bytes, str]] = {}
        # what to answer instead, once each
        self.instead: list[Reply] = []
        # how many messages are sent while their answer is lost
        self.lose = 0

    def __call__(self, asked: Asked) -> Reply | None:
        assert (asked.method, asked.path) == ("POST", "/emails")
        if asked.headers.get("authorization") != f"Bearer {API_KEY}":
            return _error(401, "invalid_api_key")
        if self.instead:
            return self.instead.pop(0)
        key = asked.headers["idempotency-key"]
        if not 1 <= len(key) <= 256:
            return _error(400, "invalid_idempotency_key")
        if key not in self.by_key:
            self.by_key[key] = asked.body, str(uuid4())
            self.sent.append(msgspec.json.decode(asked.body))
        body, sent_id = self.by_key[key]
        if body != asked.body:
            return _error(409, "invalid_idempotent_request")
        if self.lose:
            self.lose -= 1
            return None
        return Reply(200, {"id": sent_id})


def _error(status: int, name: str, **headers: str) -> Reply:
    body = {"statusCode": status, "name": name, "message": "Not so, ada@example.com."}
    return Reply(status, body, tuple((one.replace("_", "-"), value) for one, value in headers.items()))


resend_error: Callable[..., Reply] = _error


class FakeGraph:
    """The token endpoint and sendMail: tokens are taken as long as they are valid, and nothing is idempotent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.valid: set[str] = set()
        self.given = 0
        self.lasts = 3600
        self.instead: list[Reply] = []

    def __call__(self, asked: Asked) -> Reply:
        if asked.path == "/dir-1/oauth2/v2.0/token":
            return self._token(asked)
        if asked.path != "/v1.0/users/no-reply@acme.example/sendMail":
            return _graph_error(404, "ErrorInvalidUser")
        if asked.headers["authorization"].removeprefix("Bearer ") not in self.valid:
            return _graph_error(401, "InvalidAuthenticationToken")
        if self.instead:
            return self.instead.pop(0)
        self.sent.append(msgspec.json.decode(asked.body))
        return Reply(202, headers=(("request-id", f"request-{len(self.sent)}"),))

    def _token(self, asked: Asked) -> Reply:
        form = {name: value for name, [value] in parse_qs(asked.body.decode()).items()}
        assert (form["grant_type"], form["client_id"]) == ("client_credentials", "app-1")
        assert form["scope"].endswith("/.default")
        if form["client_secret"] != CLIENT_SECRET:
            return Reply(401, {"error": "invalid_client", "error_description": "AADSTS7000215"})
        self.given += 1
        self.valid = {f"token-{self.given}"}
        return Reply(
            200, {"token_type": "Bearer", "expires_in": self.lasts, "access_token": f"token-{self.given}"}
        )


def _graph_error(status: int, code: str, **headers: str) -> Reply:
    body = {"error": {"code": code, "message": "Not so, ada@example.com."}}
    return Reply(status, body, tuple((one.replace("_", "-"), value) for one, value in headers.items()))


graph_error: Callable[..., Reply] = _graph_error


@asynccontextmanager
async def resend() -> AsyncIterator[tuple[FakeResend, Server]]:
    fake = FakeResend()
    async with serving(fake) as server:
        yield fake, server


@asynccontextmanager
async def graph() -> AsyncIterator[tuple[FakeGraph, Server]]:
    fake = FakeGraph()
    async with serving(fake) as server:
        yield fake, server
