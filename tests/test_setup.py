"""`make setup` behind a proxy whose certificates a certificate authority of the company has signed."""

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.waiting import SECONDS

ROOT = Path(__file__).parents[1]
WHEEL = "fairlead_example-1.0-py3-none-any.whl"
METADATA = b"Metadata-Version: 2.1\nName: fairlead-example\nVersion: 1.0\n"
# Each of these would let uv trust the authority without our doing.
CERTIFICATE_VARIABLES = {"SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "PIP_CERT"}


class Index(NamedTuple):
    url: str
    authority: Path


class Packages(BaseHTTPRequestHandler):
    """An index with one package."""

    def do_GET(self) -> None:
        if self.path.endswith(".metadata"):
            body, kind = METADATA, "application/octet-stream"
        else:
            link = f'<a href="/{WHEEL}" data-core-metadata="true">{WHEEL}</a>'
            body, kind = f"<!DOCTYPE html><html><body>{link}</body></html>".encode(), "text/html"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """A package index over TLS that only those trust who trust the authority of this test."""
    openssl(
        tmp_path, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority"
        " -keyout authority.key -out authority.pem",
    )  # fmt: skip
    openssl(
        tmp_path, "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"
        " -keyout server.key -out server.csr",
    )  # fmt: skip
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        tmp_path, "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 2"
        " -extfile names -out server.pem",
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), Packages) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield Index(f"https://localhost:{server.server_address[1]}/simple", tmp_path / "authority.pem")
        finally:
            server.shutdown()
            serving.join()


def openssl(folder: Path, command: str) -> None:
    subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


def resolve(program: str, index: Index, **variables: str) -> subprocess.CompletedProcess[str]:
    """Let uv look for the package, without installing it."""
    command = [program, "pip", "install", "--dry-run", "--no-cache", "--no-config", "--no-deps"]
    command += ["--python", ".venv/bin/python", "--default-index", index.url, "fairlead-example"]
    env = {name: value for name, value in os.environ.items() if name not in CERTIFICATE_VARIABLES}
    env |= {"NO_PROXY": "localhost", "UV_HTTP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull} | variables
    return subprocess.run(
        command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=SECONDS
    )


@pytest.mark.thorough
def test_uv_trusts_the_certificates_that_pip_was_configured_with(index: Index) -> None:
    assert "UnknownIssuer" in resolve(".venv/bin/uv", index).stderr  # uv by itself does not

    by_variable = resolve("scripts/uv", index, PIP_CERT=str(index.authority))
    assert "fairlead-example==1.0" in by_variable.stderr

    configured = index.authority.with_name("pip.conf")
    configured.write_text(f"[global]\ncert = {index.authority}\n")
    by_file = resolve("scripts/uv", index, PIP_CONFIG_FILE=str(configured))
    assert "fairlead-example==1.0" in by_file.stderr


def test_uv_keeps_to_certificates_that_it_was_given(index: Index) -> None:
    given = resolve("scripts/uv", index, SSL_CERT_FILE=str(index.authority), PIP_CERT=os.devnull)

    assert "fairlead-example==1.0" in given.stderr


def test_only_the_script_calls_uv() -> None:
    for name in ("Makefile", "scripts/test-tools"):
        assert "bin/uv " not in (ROOT / name).read_text("utf-8"), name
