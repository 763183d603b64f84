"""A small identity provider that says yes to everybody. Used by oidc_sign_in.py."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from joserfc import jwt
from joserfc.jwk import RSAKey

KEY = RSAKey.generate_key(2048, {"kid": "one"})
ADA = {"sub": "ada-1", "email": "ada@example.com", "email_verified": True}
GROUPS = ["staff", "job-operators"]
NONCES: dict[str, str] = {}


class Provider(BaseHTTPRequestHandler):
    """Discovery, keys, a page that agrees at once, and tokens. It does not even check the client."""

    def do_GET(self) -> None:
        issuer, parts = f"http://{self.headers['host']}", urlsplit(self.path)
        if parts.path == "/jwks":
            self._send({"keys": [KEY.as_dict(private=False)]})
        elif parts.path == "/authorize":
            asked = dict(parse_qsl(parts.query))
            NONCES["code-1"] = asked["nonce"]
            back = urlencode({"code": "code-1", "state": asked["state"]})
            self._send({}, f"{asked['redirect_uri']}?{back}")
        else:
            paths = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
            self._send({"issuer": issuer, **{name: f"{issuer}/{path}" for name, path in paths.items()}})

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        claims = {"iss": f"http://{self.headers['host']}", "aud": "fairlead", "iat": int(time.time())}
        claims |= {**ADA, "exp": int(time.time()) + 60, "groups": GROUPS, "nonce": NONCES.pop(form["code"])}
        self._send({"id_token": jwt.encode({"alg": "RS256", "kid": "one"}, claims, KEY)})

    def _send(self, body: dict[str, object], location: str = "") -> None:
        self.send_response(302 if location else 200)
        self.send_header("location", location)
        self.end_headers()
        self.wfile.write(msgspec.json.encode(body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def run_provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
