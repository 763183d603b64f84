"""The [email] settings in fairlead.toml: for the system, and for tenants with settings of their own."""

from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from fairlead.errors import Fault, SettingInvalid
from fairlead.model.command import fields as words
from fairlead.model.command.spec import SecretSource
from fairlead.model.messages.email import Mailbox, parse_mailbox
from fairlead.model.messages.network import parse_host
from fairlead.model.template.path import Flaw

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


class Smtp(msgspec.Struct, frozen=True, kw_only=True):
    sender: Mailbox
    host: str
    port: int | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    password: SecretSource | None = None
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse settings that would send a password unencrypted."""
        if (self.username is None) != (self.password is None):
            raise Flaw("must have username and password, or neither")
        if self.tls == "none" and self.password and self.host not in _LOOPBACK:
            raise Flaw('must not have tls = "none" with a password: it would be sent unencrypted')

    @property
    def actual_port(self) -> int:
        return self.port or _PORTS[self.tls]


class Resend(msgspec.Struct, frozen=True, kw_only=True):
    sender: Mailbox
    api_key: SecretSource
    api_url: str = "https://api.resend.com"
    timeout_seconds: float = 30.0


class MicrosoftGraph(msgspec.Struct, frozen=True, kw_only=True):
    sender: Mailbox
    directory_id: str
    client_id: str
    client_secret: SecretSource
    api_url: str = "https://graph.microsoft.com"
    login_url: str = "https://login.microsoftonline.com"
    save_to_sent_items: bool = False
    timeout_seconds: float = 30.0


EmailSettings = Smtp | Resend | MicrosoftGraph


def read_email_settings(document: Mapping[str, Any]) -> dict[str | None, EmailSettings]:
    """The settings by tenant (None: for all other tenants); empty without [email]."""
    said = dict(_require_table("email", document.get("email", {})))
    tenants = _require_table("email.tenants", said.pop("tenants", {}))
    found: dict[str | None, EmailSettings] = {None: _read_settings("email", said)} if said else {}
    for tenant, table in tenants.items():
        where = f"email.tenants.{tenant}"
        own = _require_table(where, table)
        # a tenant with another provider inherits nothing; else its table overrides single fields
        alone = "provider" in own and own["provider"] != said.get("provider")
        found[tenant] = _read_settings(where, own if alone else {**said, **own})
    return found


def _read_settings(where: str, said: Mapping[str, Any]) -> EmailSettings:
    provider = said.get("provider")
    if not isinstance(provider, str) or provider not in _PROVIDERS:
        raise _invalid(f"{where}.provider", f"must be one of {', '.join(_PROVIDERS)}")
    made, readers, required = _PROVIDERS[provider]
    known = {**_COMMON, **readers}
    for name in sorted(said.keys() - known.keys() - {"provider"}):
        raise _invalid(f"{where}.{name}", f"is unknown; use one of {', '.join(sorted(known))}")
    for name in ("from", *required):
        if name not in said:
            raise _invalid(f"{where}.{name}", "is missing")
    values = {}
    for name in known.keys() & said.keys():
        try:
            values["sender" if name == "from" else name] = known[name](said[name])
        except Flaw as flaw:
            raise _invalid(f"{where}.{name}", flaw.message) from None
    try:
        return made(**values)
    except Flaw as flaw:
        raise _invalid(where, flaw.message) from None


def _read_ascii_word(said: Any) -> str:
    if not isinstance(said, str) or not said.isascii() or not said.isprintable() or not said or "/" in said:
        raise Flaw("must be text of printable ASCII, without /")
    return said


def _read_line(said: Any) -> str:
    if not isinstance(said, str) or not said or not said.isprintable():
        raise Flaw("must be a line of text")
    return said


def _read_sender(said: Any) -> Mailbox:
    return parse_mailbox(words.read_text(said))


def _read_host(said: Any) -> str:
    return parse_host(words.read_text(said))


def _read_encryption(said: Any) -> str:
    if said not in _PORTS:
        raise Flaw(f"must be one of {', '.join(_PORTS)}")
    return str(said)


def _read_boolean(said: Any) -> bool:
    if not isinstance(said, bool):
        raise Flaw("must be true or false")
    return said


_ENDPOINTS = ("/emails", "/sendMail", "/token")


def _read_base_url(said: Any) -> str:
    """The base URL of an API: it receives secrets, so it must be https, except on this machine."""
    parts = urlsplit(words.read_text(said))
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise Flaw("must be a base URL that begins with https://, such as https://api.resend.com")
    if parts.query or parts.fragment or parts.path.rstrip("/").endswith(_ENDPOINTS):
        raise Flaw("must be only the base URL, such as https://api.resend.com: the path is appended to it")
    return words.read_text(said).rstrip("/")


def _require_table(where: str, said: Any) -> Mapping[str, Any]:
    if not isinstance(said, Mapping):
        raise _invalid(where, "must be a table")
    return said


def _invalid(where: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"fairlead.toml is not valid: {where} {why}.", [Fault(where, why)])


_Readers = Mapping[str, Callable[[Any], Any]]

_COMMON: _Readers = {"from": _read_sender, "timeout_seconds": words.seconds_reader(1, 300)}
# By provider: its class, the readers of its fields, and its required fields.
_PROVIDERS: dict[str, tuple[Callable[..., EmailSettings], _Readers, tuple[str, ...]]] = {
    "smtp": (
        Smtp,
        {
            "host": _read_host,
            "port": words.integer_reader(1, 65_535),
            "tls": _read_encryption,
            "username": _read_line,
            "password": words.read_secret_source,
        },
        ("host",),
    ),
    "resend": (Resend, {"api_key": words.read_secret_source, "api_url": _read_base_url}, ("api_key",)),
    "graph": (
        MicrosoftGraph,
        {
            "directory_id": _read_ascii_word,
            "client_id": _read_ascii_word,
            "client_secret": words.read_secret_source,
            "api_url": _read_base_url,
            "login_url": _read_base_url,
            "save_to_sent_items": _read_boolean,
        },
        ("directory_id", "client_id", "client_secret"),
    ),
}
