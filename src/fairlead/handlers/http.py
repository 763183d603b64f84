"""`http.request`: a job that makes an HTTP request, only to public addresses and to those that the settings allow."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from fairlead.handlers.commands import SecretMissing
from fairlead.handlers.context import Context, Fatal
from fairlead.handlers.http_exchange import ExchangeBroken, HostUnreachable, HttpAnswer, exchange
from fairlead.handlers.http_failures import TemporaryFailure, failure_for_answer
from fairlead.handlers.log import clean_text
from fairlead.handlers.lookups import Lookups
from fairlead.model.messages.http_call import (
    KEY,
    LONGEST_URL,
    Call,
    HttpTarget,
    check_headers,
    encode_body,
    parse_target,
)
from fairlead.model.messages.http_response import decode_body, select_headers
from fairlead.model.messages.network import Allowed
from fairlead.model.messages.webhook import decode_key, sign_webhook
from fairlead.model.secrets.redact import Mask, Secret
from fairlead.model.template.path import Flaw

OPTIONS = {"key": KEY, "timeout": 330, "max_attempts": 5}

MOST_ADDRESSES = 4
SHOWN_IN_ERRORS = 300

_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Status = Annotated[int, Meta(ge=100, le=599)]
# Resolves a host's addresses for a tenant.
Resolve = Callable[[str, str, int], Awaitable[list[str]]]
# The named signing secret for a tenant's request to a target: None if unknown; raises RequestRefused if not allowed.
SecretNamed = Callable[[str, str, HttpTarget], str | None]


class RequestRefused(Fatal):
    """The request is invalid or not allowed; nothing was sent."""


class HttpRequests:
    """Makes the requests of jobs."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        secret_named: SecretNamed = lambda _tenant, _name, _target: None,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed = allowed
        self._secret_named = secret_named
        self._resolve = resolve or Lookups().addresses
        self._trust = trust

    async def request(
        self,
        ctx: Context,
        *,
        url: Annotated[str, Meta(min_length=1, max_length=LONGEST_URL)],
        method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET",
        headers: dict[str, str] | None = None,
        secret_headers: Annotated[dict[str, str] | None, Secret()] = None,
        body: Any = None,
        expected_status: Status | list[Status] | None = None,
        timeout_seconds: Annotated[float, Meta(ge=0.1, le=300)] = 30.0,
        max_response_bytes: Annotated[int, Meta(ge=0, le=131_072)] = 65_536,
        max_redirects: Annotated[int, Meta(ge=0, le=10)] = 5,
        sign_with: Annotated[str, Meta(max_length=128)] | None = None,
        signing_secret: Annotated[str | None, Secret()] = None,
        webhook_id: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,128}$")] | None = None,
    ) -> dict[str, Any]:
        """Make an HTTP request and store its answer."""
        call = _build_call(url, method, merge_headers(headers, secret_headers), body)
        if (key := self._signing_key(ctx, call, sign_with, signing_secret)) is not None:
            # the id is the same for every attempt, so that a receiver can detect duplicates
            signature = sign_webhook(key, webhook_id or str(ctx.job_id), int(time.time()), call.content)
            call = replace(call, headers={**call.headers, **signature})
        elif webhook_id is not None:
            call = replace(call, headers={**call.headers, "webhook-id": webhook_id})
        expected = [expected_status] if isinstance(expected_status, int) else expected_status
        try:
            async with asyncio.timeout(timeout_seconds):
                call, answer = await self._follow_redirects(
                    ctx.tenant, call, expected, max_redirects, max_response_bytes
                )
        except TimeoutError:
            raise TemporaryFailure(
                f"{call.target.host} did not answer within {timeout_seconds:g} s"
            ) from None
        shown = _render_answer(answer, ctx.mask)
        if not _is_expected(answer.status, expected):
            raise failure_for_answer(
                ctx, answer.status, answer.headers.get("retry-after"), _describe_answer(call, shown, ctx.mask)
            )
        return shown

    async def _follow_redirects(
        self, tenant: str, call: Call, expected: list[int] | None, redirects: int, max_bytes: int
    ) -> tuple[Call, HttpAnswer]:
        """Follow redirects; the last request and its answer."""
        for left in range(redirects, -1, -1):
            answer = await self._send(tenant, call, max_bytes)
            location = answer.headers.get("location")
            if (
                answer.status not in _REDIRECTS
                or _is_expected(answer.status, expected)
                or location is None
                or not left
            ):
                return call, answer
            try:
                call = call.follow_redirect(answer.status, location)
            except Flaw as flaw:
                raise RequestRefused(
                    f"A redirect of {call.target.host} was refused: it {flaw.message}."
                ) from None
        raise AssertionError("the last answer was returned")

    async def _send(self, tenant: str, call: Call, max_bytes: int) -> HttpAnswer:
        """Try the host's addresses in turn until one can be reached."""
        why = "it has no address"
        for address in await self._resolve_allowed(tenant, call):
            try:
                return await exchange(
                    call.method,
                    # the checked address: the name could resolve to another one by now
                    call.target.at(address),
                    headers={**call.headers, "host": call.target.authority},
                    content=call.content,
                    max_bytes=max_bytes,
                    server_name=call.target.host,
                    trust=self._trust,
                )
            except HostUnreachable as error:
                why = str(error)
            except ExchangeBroken as error:
                raise TemporaryFailure(f"The connection to {call.target.host} broke: {error}") from None
        raise TemporaryFailure(f"{call.target.host} could not be reached: {why}")

    async def _resolve_allowed(self, tenant: str, call: Call) -> list[str]:
        """The host's addresses; raises RequestRefused unless all are allowed."""
        host = call.target.host
        try:
            found = await self._resolve(tenant, host, call.target.port)
        except OSError as error:
            raise TemporaryFailure(f"{host} could not be resolved: {error.strerror or error}") from None
        # without the zone of a link-local address, which is never allowed
        addresses = [ip_address(one.partition("%")[0]) for one in found]
        if not all(self._allowed.permits(host, one) for one in addresses):
            raise RequestRefused(
                f"{host} is not on the public network. If jobs may reach it, name it in the setting http_allow."
            )
        return [str(one) for one in addresses[:MOST_ADDRESSES]]

    def _signing_key(self, ctx: Context, call: Call, name: str | None, secret: str | None) -> bytes | None:
        """The signing key, if the request is signed."""
        if name is not None and secret is not None:
            raise RequestRefused("sign_with and signing_secret exclude each other.")
        if name is not None:
            try:
                secret = self._secret_named(ctx.tenant, name, call.target)
            except SecretMissing as error:
                raise TemporaryFailure(f"The signing secret {name!r} cannot be read: {error}.") from None
            if secret is None:
                raise RequestRefused(
                    f"There is no signing secret {name!r} for {ctx.tenant}: add it to [http.tenants.{ctx.tenant}.secrets] in fairlead.toml."
                )
        try:
            return None if secret is None else decode_key(secret)
        except Flaw as flaw:
            raise RequestRefused(f"The signing secret {flaw.message}.") from None


def merge_headers(plain: Mapping[str, str] | None, secret: Mapping[str, str] | None) -> dict[str, str]:
    """A job's plain and secret headers, merged."""
    try:
        return check_headers(plain, secret)
    except Flaw as flaw:
        raise RequestRefused(f"The headers {flaw.message}.") from None


def _build_call(url: str, method: str, headers: dict[str, str], body: Any) -> Call:
    try:
        target = parse_target(url)
    except Flaw as flaw:
        raise RequestRefused(f"The url {flaw.message}.") from None
    content, kind = encode_body(body)
    if kind is not None:
        headers.setdefault("content-type", kind)
    return Call(method, target, headers, content)


def _is_expected(status: int, expected: list[int] | None) -> bool:
    return 200 <= status <= 299 if expected is None else status in expected


def _render_answer(answer: HttpAnswer, mask: Mask | None) -> dict[str, Any]:
    headers = select_headers(answer.headers.multi_items(), mask)
    return {
        "status": answer.status,
        "headers": headers,
        "body": decode_body(answer.body, headers, truncated=answer.truncated, mask=mask),
        "truncated": answer.truncated,
    }


def _describe_answer(call: Call, shown: Mapping[str, Any], mask: Mask | None) -> str:
    said = shown["body"]
    text = "" if said is None else f": {clean_text(str(said), SHOWN_IN_ERRORS, mask)}"
    return f"{call.target.host} answered {shown['status']}{text}"
