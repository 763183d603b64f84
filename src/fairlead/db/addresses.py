"""Addresses of databases: check them, describe them without their password, and find the primary of several servers."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from fairlead.errors import DatabaseUnreachable

# A password with an unescaped @ or /: libpq takes the rest for the host, and messages would show it.
_MISLEADING = re.compile(r"\w+://[^@/]*[@/][^?@]*@")
# The values of target_session_attrs with which a connection can write.
WRITABLE = ("read-write", "primary")
SHORTEST_CONNECT_SECONDS = 2
# Where libpq looks for the socket of an address without a host: Debian's packages, and PostgreSQL's own.
DEFAULT_SOCKET_FOLDERS = ("/var/run/postgresql", "/tmp")  # noqa: S108


def can_be_read(url: str) -> bool:
    """Whether libpq understands the address, and takes nothing of a password for the host."""
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return False
    return _MISLEADING.match(url) is None


def check_address(url: str) -> None:
    """Refuse an unreadable address before the driver does: its message would quote the password."""
    if not can_be_read(url):
        raise unreadable_error()


def unreadable_error() -> DatabaseUnreachable:
    """The error for an address that cannot be read."""
    return DatabaseUnreachable(
        "The address of the database cannot be read (it is not shown, since a password may be in it). Correct "
        "FAIRLEAD_DATABASE_URL, or FAIRLEAD_DIRECT_URL: postgresql://user:password@host:5432/database, and in the "
        "password %40 for @, %2F for / and %25 for %."
    )


def describe_address(url: str) -> str:
    """Where a URL points, without its password."""
    if not can_be_read(url):
        return "an address that cannot be read"
    return f"{','.join(list_servers(url))}/{_parts(url).get('dbname', '')}"


def list_servers(url: str) -> list[str]:
    """Each server that an address names, as `host:port`; an address that cannot be read names none."""
    if not can_be_read(url):
        return []
    parts = _parts(url)
    named = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST")
    hosts = [host or "the default socket" for host in (named or "").split(",")]
    ports = [port or "5432" for port in str(parts.get("port") or os.environ.get("PGPORT") or "").split(",")]
    if len(ports) == 1:
        ports *= len(hosts)
    return [f"{host}:{port}" for host, port in zip(hosts, ports, strict=False)]


def read_server(url: str) -> tuple[str, int]:
    """Host (or the folder of the socket) and port of the only server that an address names."""
    check_address(url)
    servers = list_servers(url)
    if len(servers) != 1:
        raise DatabaseUnreachable(f"{describe_address(url)} names several servers. Give one: the primary.")
    host, _, port = servers[0].rpartition(":")
    if "host" not in _parts(url) and "hostaddr" not in _parts(url) and not os.environ.get("PGHOST"):
        host = next((folder for folder in DEFAULT_SOCKET_FOLDERS if Path(folder).is_dir()), "localhost")
    return host, int(port)


def replace_server(url: str, host: str, port: int) -> str:
    """The URL of the same database through another host and port, without encryption."""
    check_address(url)
    ours = {"host": host, "port": str(port), "sslmode": "disable", "gssencmode": "disable"}
    dropped = ("hostaddr", "sslrootcert", "channel_binding", "dbname", "user", "password", *ours)
    parts = _parts(url)
    rest = {key: str(value) for key, value in parts.items() if key not in dropped} | ours
    whose = ":".join(quote(str(parts[key]), safe="") for key in ("user", "password") if key in parts)
    name = quote(str(parts.get("dbname", "")), safe="")
    return f"postgresql://{whose and whose + '@'}/{name}?{urlencode(rest, quote_via=quote)}"


def read_target(url: str) -> str | None:
    """The `target_session_attrs` that the user chose for this address; None if there is none."""
    if not can_be_read(url):
        return None
    return _parts(url).get("target_session_attrs") or os.environ.get("PGTARGETSESSIONATTRS") or None


def primary_parameters(url: str, *, seconds: float) -> dict[str, Any]:
    """Parameters for a connection to the primary, however many servers the address names.

    Of several servers only one is the primary, so the others are passed over. All of them are tried within `seconds`:
    a machine that is gone does not answer, and must not take the whole time. A `connect_timeout` of the address wins.
    """
    servers = max(1, len(list_servers(url)))
    found: dict[str, Any] = {}
    if can_be_read(url) and "connect_timeout" not in _parts(url):
        found["connect_timeout"] = max(SHORTEST_CONNECT_SECONDS, int(seconds / servers))
    if servers > 1 and read_target(url) is None:
        found["target_session_attrs"] = "read-write"
    return found


def _parts(url: str) -> dict[str, Any]:
    return psycopg.conninfo.conninfo_to_dict(url)
