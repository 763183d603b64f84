"""An OpenID provider on loopback: real sockets, real signatures. It can be told to lie."""

import base64
import hashlib
import secrets
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

from joserfc import jws, jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from tests.handlers.loopback import Asked, Reply, serving

CLIENT, SECRET = "fairlead", "s3cret: %/+"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
ALL = list(jws.JWSRegistry.algorithms)
Claims = dict[str, Any]


@cache
def rsa_key(kid: str) -> RSAKey:
    """To make one takes long."""
    return RSAKey.generate_key(2048, {"kid": kid})


def ec_key(kid: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid})


def ed_key(kid: str) -> OKPKey:
    return OKPKey.generate_key("Ed25519", {"kid": kid})


class Provider:
    """What it says can be changed: `person`, `claims`, `header`, `document`, `keys`, and whole replies by path."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.person: Claims = {
            "sub": "ada-1",
            "email": "ada@example.com",
            "email_verified": True,
            "groups": ["staff", "operators"],
            "sid": "session-1",
        }
        self.claims: Callable[[Claims], Claims] = lambda claims: claims
        self.header: Claims = {}
        self.document: Claims = {}
        self.answer: Claims = {}
        self.key: Key = rsa_key("one")
        self.algorithm = "RS256"
        self.sign: Callable[[Claims, Claims], str] = self._sign
        self.published: list[Key] = [self.key]
        self.replies: dict[str, Reply | None] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.secret: str | None = SECRET
        self.posts_secret = False

    def reply(self, asked: Asked) -> Reply | None:
        """The answer to a request."""
        path, _, query = asked.path.partition("?")
        self.asked.append(path)
        if path in self.replies:
            return self.replies[path]
        match path:
            case "/.well-known/openid-configuration":
                return Reply(body=self.describe())
            case "/jwks":
                return Reply(body={"keys": [key.as_dict(private=False) for key in self.published]})
            case "/authorize":
                return self.authorize(dict(parse_qsl(query)))
            case "/token":
                return self.redeem(asked)
        return Reply(404)

    def describe(self) -> Claims:
        method = "client_secret_post" if self.posts_secret else "client_secret_basic"
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/logout",
            "authorization_response_iss_parameter_supported": True,
            "token_endpoint_auth_methods_supported": [method],
            **self.document,
        }

    def authorize(self, asked: dict[str, str]) -> Reply:
        """The person agrees at once."""
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        given = {"code": code, "state": asked["state"], "iss": self.issuer, **self.answer}
        given = {name: value for name, value in given.items() if value is not None}
        return Reply(302, headers=(("location", f"{asked['redirect_uri']}?{urlencode(given)}"),))

    def redeem(self, asked: Asked) -> Reply:
        fields = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
        begun = self.codes.pop(fields["code"], None)
        if not self._is_client(asked, fields):
            return Reply(401, {"error": "invalid_client"})
        challenge = encode_part(hashlib.sha256(fields["code_verifier"].encode()).digest())
        if begun is None or (begun["code_challenge"], begun["redirect_uri"]) != (
            challenge,
            fields["redirect_uri"],
        ):
            return Reply(400, {"error": "invalid_grant"})
        return Reply(body={"token_type": "Bearer", "id_token": self.id_token(begun["nonce"])})

    def _is_client(self, asked: Asked, fields: dict[str, str]) -> bool:
        if self.secret is None:
            return fields.get("client_id") == CLIENT and "authorization" not in asked.headers
        if self.posts_secret:
            return (fields.get("client_id"), fields.get("client_secret")) == (CLIENT, self.secret)
        _, _, pair = asked.headers.get("authorization", "").partition(" ")
        client, _, secret = base64.b64decode(pair).decode().partition(":")
        return (unquote_plus(client), unquote_plus(secret)) == (CLIENT, self.secret)

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            **self.person,
        }
        return self.sign(self._header(), _clean(self.claims(claims)))

    def logout_token(self, **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 120,
            "jti": secrets.token_hex(8),
            "events": {LOGOUT_EVENT: {}},
            "sub": self.person["sub"],
            "sid": self.person["sid"],
            **changes,
        }
        return self.sign({**self._header(), "typ": "logout+jwt"}, _clean(claims))

    def _header(self) -> Claims:
        return _clean({"alg": self.algorithm, "kid": self.key.kid, **self.header})

    def _sign(self, header: Claims, claims: Claims) -> str:
        registry = jws.JWSRegistry(algorithms=ALL, strict_check_header=False)
        registry.max_header_length = 8192
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # of EdDSA
            return jwt.encode(header, claims, self.key, registry=registry)


def _clean(claims: Claims) -> Claims:
    """Without what a lie takes away."""
    return {name: value for name, value in claims.items() if value is not None}


def encode_part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@asynccontextmanager
async def provider_on(host: str = "127.0.0.1") -> AsyncIterator[Provider]:
    """A provider at a port of its own."""
    made: list[Provider] = []

    def answer(asked: Asked) -> Reply | None:
        return made[0].reply(asked)

    async with serving(answer, host=host) as server:
        made.append(Provider(server.url))
        yield made[0]


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))
