"""One frozen Settings, one loader: fairlead.toml < environment FAIRLEAD_* < flags."""

import difflib
import json
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fairlead.errors import Fault, SettingInvalid

PREFIX = "FAIRLEAD_"
# The largest number that every reader of JSON knows exactly.
LARGEST = 2**53 - 1
TOKEN_VARIABLE = PREFIX + "TOKEN"
URL_VARIABLE = PREFIX + "URL"
AUDIT_KEY_VARIABLE = PREFIX + "AUDIT_KEY"
# The tables of fairlead.toml, which other modules read.
TABLES = ("commands", "email", "engines", "http", "oidc", "secrets", "sources")
# The roles that a user can have; the others are for tokens.
ROLES_OF_PEOPLE = ("viewer", "operator", "tenant_admin", "super_admin")
# Other modules read these: the settings file, the folder of root's embedded servers, the token of a worker over HTTP or
# an MCP server, the server's URL, which programs in other languages use, too, and the key that signs exports of the audit log.
OTHER_VARIABLES = frozenset(
    {PREFIX + "CONFIG", PREFIX + "SYSTEM_DIR", TOKEN_VARIABLE, URL_VARIABLE, AUDIT_KEY_VARIABLE}
)
# Workers set these for commands, and a command may run `fairlead` itself.
GIVEN_VARIABLES = frozenset(
    {
        "FAIRLEAD_JOB_ID",
        "FAIRLEAD_TENANT_ID",
        "FAIRLEAD_TENANT",
        "FAIRLEAD_DEFINITION",
        "FAIRLEAD_ATTEMPT",
        "FAIRLEAD_CORRELATION_ID",
        "FAIRLEAD_DEADLINE",
        "FAIRLEAD_RESULT_FILE",
        "FAIRLEAD_PROGRESS_FD",
    }
)


class Range(NamedTuple):
    """The numbers that a setting may have: `least` or more, or more than `above`, and `most` at most; with `zero`, also 0."""

    least: float = 0
    most: float = math.inf
    above: float | None = None
    zero: bool = False

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int | float):
            return False
        if self.zero and number == 0:
            return True
        is_enough = number >= self.least if self.above is None else number > self.above
        return is_enough and number <= self.most

    @property
    def advice(self) -> str:
        """What to use, as errors say it."""
        bounded = self.most < LARGEST
        if self.above is not None:
            return f"use more than {self.above}" + (f", at most {self.most}" if bounded else "")
        if self.zero:
            return f"use 0, or {self.least} or more"
        return f"use {self.least} to {self.most}" if bounded else f"use {self.least} or more"


def _setting(default: Any, about: str, *, secret: bool = False, within: Range | None = None) -> Any:
    return field(default=default, metadata={"about": about, "within": within}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; `about` describes each."""

    database_url: str | None = _setting(
        None,
        "PostgreSQL to use, as a connection URI; a SQLAlchemy URL such as `postgresql+psycopg://…` is accepted. "
        "It may name several servers, `postgresql://…@one,two,three/jobs`: the primary among them is used. "
        "Unset: an embedded PostgreSQL in `data_dir`.",
        secret=True,
    )
    direct_url: str | None = _setting(
        None,
        "A URI of the same database that bypasses the pooler. Set it when `database_url` goes through "
        "PgBouncer in transaction mode: LISTEN and migrations use it, and prepared statements are turned off "
        "on the pooled connections.",
        secret=True,
    )
    schema: str = _setting(
        "fairlead", "The PostgreSQL schema that holds Fairlead's tables (lower-case letters, digits, `_`)."
    )
    citus: bool = _setting(
        False,
        "Whether `database_url` is the coordinator of a Citus cluster, and `schema` a distributed schema in it. Fairlead "
        "connects to the node that holds the schema.",
    )
    data_dir: Path = _setting(Path(".fairlead"), "Where the embedded PostgreSQL and `dev.json` live.")
    pool_size: int = _setting(10, "The most database connections of one process.", within=Range(1, 1000))
    connect_timeout_seconds: float = _setting(
        30.0,
        "How long to wait for a free or new connection before giving up.",
        within=Range(above=0),
    )
    statement_timeout_seconds: float = _setting(
        30.0,
        "PostgreSQL ends a statement that runs longer. 0 means never. Bulk loads and migrations are exempt.",
        within=Range(0),
    )
    lock_timeout_seconds: float = _setting(
        10.0,
        "PostgreSQL ends a statement that waits longer for a lock. 0 means never.",
        within=Range(0),
    )
    lease_seconds: float = _setting(
        30.0,
        "How long a worker's lease on a job lasts. The worker renews it after a third of this time.",
        within=Range(1, 3600),
    )
    bridge_lease_seconds: float = _setting(
        120.0,
        "How long `fairlead bridge` may be away before the attempts that delivery engines carry count as lost. Bridges renew "
        "their leases after a third of this time.",
        within=Range(1, 86_400),
    )
    poll_seconds: float = _setting(
        1.0,
        "How often an idle worker polls for jobs when it gets no notification.",
        within=Range(0.05, 3600),
    )
    labels: tuple[str, ...] = _setting(
        (),
        'The labels of workers, such as `["gpu=true", "region=eu"]`: definitions may require or prefer them. A JSON list, or '
        "one label.",
    )
    prefer_seconds: float = _setting(
        5.0,
        "How long jobs wait for a worker with the labels that they prefer before other workers take them.",
        within=Range(0, 86_400),
    )
    sweep_seconds: float = _setting(
        10.0, "How often the watchdog looks for expired leases.", within=Range(0.1, 3600)
    )
    maintenance: bool = _setting(
        True,
        "Whether a server (`fairlead serve`, or an application that mounts the API) and `fairlead scheduler` also rescue "
        "expired leases and do the regular duties: retention, folding of counts, days of the audit log, checks. Workers "
        "always do. Turn it off only where a worker runs.",
    )
    drain_seconds: float = _setting(
        25.0,
        "How long a stopping worker lets its jobs run before it releases them.",
        within=Range(0, 86_400),
    )
    schedule_grace_seconds: float = _setting(
        60.0,
        "How late a scheduled run may start if its trigger does not catch up with missed runs.",
        within=Range(above=0, most=86_400),
    )
    max_backfill: int = _setting(
        1000,
        "How many instants of a schedule one backfill may fire. They are enqueued in one transaction.",
        within=Range(1, 10_000),
    )
    retention_days: int = _setting(
        30,
        "How many days finished jobs (unless their definition says otherwise), dispatched events and the records of "
        "firings are kept. 0 means forever.",
        within=Range(0, 36_500),
    )
    audit_retention_days: int = _setting(
        365,
        "How many days the audit log is kept; older days are dropped as a whole. 0 means forever.",
        within=Range(0, 36_500),
    )
    max_trigger_chain: int = _setting(
        16,
        "The longest chain of triggers that fire each other through their jobs; the next trigger does not fire (`circle`).",
        within=Range(1, 100),
    )
    max_payload_bytes: int = _setting(
        262_144, "The largest payload, as JSON text, that an enqueue accepts.", within=Range(above=0)
    )
    max_payload_depth: int = _setting(
        64, "The deepest nesting of a payload that an enqueue accepts.", within=Range(1, 500)
    )

    max_body_bytes: int = _setting(
        16_777_216,
        "The largest body of an HTTP request. It is refused before it is read.",
        within=Range(1024),
    )
    request_header_seconds: float = _setting(
        10.0,
        "How long the header of an HTTP request may take. Only for `fairlead serve` and `fairlead dev`.",
        within=Range(above=0, most=3600),
    )
    request_body_seconds: float = _setting(
        30.0,
        "How long the body of an HTTP request may take, and how long a client may leave its response unread; one more "
        "second for every 16 kB. Only for `fairlead serve` and `fairlead dev`.",
        within=Range(above=0, most=3600),
    )
    connection_idle_seconds: float = _setting(
        75.0,
        "How long a connection may be idle between two requests: longer than a proxy keeps it, which is often 60 s, or "
        "requests meet the server's close. Only for `fairlead serve` and `fairlead dev`.",
        within=Range(above=0, most=3600),
    )
    max_connections: int = _setting(
        0,
        "The most open connections of `fairlead serve`. Above it, the connections that have waited longest for a request "
        "are closed; if there are none, new ones are refused with `server_full`. 0 means as many as file descriptors "
        "allow (`ulimit -n`).",
        within=Range(16, zero=True),
    )
    max_connections_per_address: int = _setting(
        256,
        "The most open connections of `fairlead serve` from one address (for IPv6, from one /64). Proxies in "
        "`FORWARDED_ALLOW_IPS` are exempt. 0 means any number.",
        within=Range(0),
    )
    max_sockets_per_caller: int = _setting(
        50,
        "How many live sockets a token or a user may have open, in each server process. 0 means any number.",
        within=Range(0),
    )
    max_sockets_per_tenant: int = _setting(
        1000,
        "How many live sockets the people and programs of a tenant may have open, at all server processes together. 0 means any number.",
        within=Range(0),
    )
    max_followers_per_caller: int = _setting(
        20,
        "How many logs a token or a user may follow at once (`follow=true`), in each server process. 0 means any number.",
        within=Range(0),
    )
    max_followers_per_tenant: int = _setting(
        100,
        "How many logs the people and programs of a tenant may follow at once, at all server processes together. 0 means any number.",
        within=Range(0),
    )
    max_long_polls_per_tenant: int = _setting(
        10_000,
        "How many long polls the workers (with tokens of that tenant) and agents of a tenant may have open, at all server "
        "processes together. 0 means any number.",
        within=Range(0, LARGEST),
    )
    max_queued_per_tenant: int = _setting(
        1_000_000,
        "The most queued jobs of a tenant; more are refused with `queue_full`. 0 means any number. Like the next four "
        "quotas, for tenants without a quota of their own (`fairlead tenants set --quota`).",
        within=Range(0, LARGEST),
    )
    max_run_jobs: int = _setting(
        100_000,
        "The most jobs of a workflow run and all runs that it starts (`quota_exceeded`). 0 means any number.",
        within=Range(0, LARGEST),
    )
    max_triggers_per_tenant: int = _setting(
        10_000,
        "How many triggers a tenant may have (`quota_exceeded`). 0 means any number.",
        within=Range(0, LARGEST),
    )
    max_tokens_per_tenant: int = _setting(
        1000,
        "How many tokens of a tenant may be valid at once (`quota_exceeded`). 0 means any number.",
        within=Range(0, LARGEST),
    )
    max_stored_bytes_per_tenant: int = _setting(
        107_374_182_400,
        "How many bytes the payloads, outputs and logs of a tenant's jobs may take until enqueues are refused "
        "(`quota_exceeded`). Estimated every few minutes. 0 means any number.",
        within=Range(0, LARGEST),
    )
    rate_limit_per_second: float = _setting(
        200.0,
        "How many requests a second a token or a user may make, over all server processes. All those of a tenant together may "
        "make five times as many.",
        within=Range(above=0),
    )
    rate_limit_burst: int = _setting(
        1000,
        "How many requests a token or a user may send in a burst, over all server processes.",
        within=Range(1),
    )
    public_url: str | None = _setting(
        None,
        "Where people reach the server, such as `https://jobs.example.com`, with the path of the proxy or of the application "
        "that mounts it, if any. Links in mails and the addresses for an identity provider begin with it.",
    )
    invitation_hours: float = _setting(
        72.0, "How long the link of an invitation works.", within=Range(above=0, most=720)
    )
    reset_minutes: float = _setting(
        60.0,
        "How long the link works with which a user sets a new password.",
        within=Range(above=0, most=1440),
    )
    session_hours: float = _setting(
        12.0, "How long a user stays signed in.", within=Range(above=0, most=8760)
    )
    session_idle_minutes: float = _setting(
        60.0,
        "After how long without use a session ends. Refreshes of an open page are no use. 0 means no idle timeout.",
        within=Range(5, zero=True),
    )
    require_second_factor: tuple[str, ...] = _setting(
        (),
        "The roles whose users need a second factor when they sign in with a password, such as "
        '`["super_admin", "tenant_admin"]`; a user without one is led to the set-up, and can do nothing else. Tokens and '
        "users of an identity provider need none. In the environment: a JSON list, or one role.",
    )
    personal_token_days: int = _setting(
        90,
        "How long the tokens that users make for themselves are valid at most, in days.",
        within=Range(1, 366),
    )
    enable_tick: bool = _setting(
        False, "Whether `POST /api/v1/jobs/tick` runs due jobs in the server's process. For development."
    )
    redact_patterns: tuple[str, ...] = _setting(
        (),
        "Regular expressions (Python's): matches are shown as `[redacted]` in jobs, audit, logs and errors. "
        "In the environment: a JSON list, or one expression.",
    )
    encryption_key: str | None = _setting(
        None,
        "Where the master key is that protects secrets in the database: `file:/path`, `env:NAME`, or `call:module:name` for a "
        "key in a KMS. It takes effect after `fairlead keys enable`.",
    )
    encryption_old_keys: tuple[str, ...] = _setting(
        (),
        "Where earlier master keys are, until `fairlead keys rotate` has replaced them. In the environment: a JSON list, or "
        "one source.",
    )
    http_requests: bool = _setting(
        False,
        "Whether workers run `http.request` jobs: HTTP requests from the worker's network to public addresses.",
    )
    http_allow: tuple[str, ...] = _setting(
        (),
        "Networks, addresses and host names that `http.request` may reach although they are not public. "
        "In the environment: a JSON list, or one entry.",
    )
    metrics_public: bool = _setting(
        False, "Whether `/metrics` needs no token. Otherwise it needs a super admin's token."
    )
    metrics_port: int = _setting(
        0,
        "The port where a worker process serves Prometheus metrics, without a token; or the next free port. 0 means none.",
        within=Range(0, 65_535),
    )
    metrics_host: str = _setting("127.0.0.1", "The address that `metrics_port` listens on.")
    log_format: str = _setting(
        "console",
        "The log format of long-running commands: `console` for people, `json` for machines, one line each.",
    )

    def __post_init__(self) -> None:
        """Raise SettingInvalid, with the setting's name, for values out of range."""
        for name in ("database_url", "direct_url"):
            object.__setattr__(self, name, _strip_driver(getattr(self, name)))
        for one in fields(self):
            within: Range | None = one.metadata["within"]
            if within is not None:
                _check(getattr(self, one.name) in within, one.name, within.advice)
        self._check_names()
        _check(
            set(self.require_second_factor) <= set(ROLES_OF_PEOPLE),
            "require_second_factor",
            f"use roles of people: {', '.join(ROLES_OF_PEOPLE)}",
        )
        compile_patterns(self.redact_patterns)
        _check(self.log_format in ("console", "json"), "log_format", "use console or json")

    def _check_names(self) -> None:
        _check(
            re.fullmatch(r"[a-z_][a-z0-9_]{0,47}", self.schema), "schema", "use a-z, 0-9 and _, at most 48"
        )
        _check(not self.schema.startswith("pg_"), "schema", "names that start with pg_ belong to PostgreSQL")
        _check(all("=" in one for one in self.labels), "labels", "write each as name=value, such as gpu=true")
        _check(
            self.public_url is None or re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", self.public_url),
            "public_url",
            "write it as https://jobs.example.com, without user, query or fragment",
        )

    @property
    def pooled(self) -> bool:
        """Whether `database_url` goes through a transaction pooler."""
        return self.direct_url is not None


@lru_cache
def compile_patterns(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """`redact_patterns`, compiled; SettingInvalid names the invalid pattern."""
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern))
        except re.error as error:
            raise _bad_pattern(pattern, f"it is not a regular expression: {error}") from error
        if found[-1].search(""):
            raise _bad_pattern(pattern, "it matches the empty text")
    return tuple(found)


def _bad_pattern(pattern: str, why: str) -> SettingInvalid:
    return SettingInvalid(
        f"The setting redact_patterns has an invalid pattern {pattern!r}: {why}.",
        [Fault("redact_patterns", why)],
    )


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Settings:
    """Settings from the file, overridden by the environment, overridden by flags that are not None."""
    given = {
        **_from_file(file or config_file(environ)),
        **_from_environment(environ),
        **{name: value for name, value in (flags or {}).items() if value is not None},
    }
    known = {setting.name for setting in fields(Settings)}
    if unknown := sorted(given.keys() - known):
        raise SettingInvalid(
            f"Unknown setting {', '.join(unknown)}. Known: {', '.join(sorted(known))}.",
            [Fault(name, "unknown setting") for name in unknown],
        )
    hints = _read_hints()
    return Settings(**{name: _convert(name, value, hints[name]) for name, value in given.items()})


@lru_cache
def _read_hints() -> dict[str, Any]:
    """The types of the settings; to read them takes longer than all else here, and a command loads its settings three times."""
    return typing.get_type_hints(Settings)


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The settings file: FAIRLEAD_CONFIG, or fairlead.toml in the working folder."""
    named = environ.get(PREFIX + "CONFIG")
    if named and not Path(named).is_file():
        raise SettingInvalid(
            f"FAIRLEAD_CONFIG names {named}, and there is no such file.", [Fault("CONFIG", "no such file")]
        )
    return Path(named or "fairlead.toml")


def unknown_variables(environ: Mapping[str, str] = os.environ) -> list[str]:
    """FAIRLEAD_* variables that are no setting: most likely misspelt."""
    known = (
        {PREFIX + setting.name.upper() for setting in fields(Settings)} | OTHER_VARIABLES | GIVEN_VARIABLES
    )
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def read_document(path: Path) -> dict[str, Any]:
    """The parsed fairlead.toml; empty if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingInvalid(f"{path} is not valid TOML: {error}") from error


def _from_file(path: Path) -> dict[str, Any]:
    """The settings: the top-level values of the file. Its tables configure single features; an unknown one is refused."""
    document = read_document(path)
    tables = [name for name, value in document.items() if isinstance(value, dict)]
    if unknown := [name for name in tables if name not in TABLES]:
        near = difflib.get_close_matches(unknown[0], TABLES, n=1)
        advice = f"Did you mean [{near[0]}]? " if near else ""
        raise SettingInvalid(
            f"{path} has an unknown table [{unknown[0]}]. {advice}Known: {', '.join(f'[{name}]' for name in TABLES)}.",
            [Fault(name, "unknown table") for name in unknown],
        )
    return {name: value for name, value in document.items() if name not in tables}


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    known = {PREFIX + setting.name.upper(): setting.name for setting in fields(Settings)}
    return {known[name]: value for name, value in environ.items() if name in known and value}


def _convert(name: str, value: Any, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not types.NoneType)
    try:
        if hint is Path:
            return Path(value).expanduser()
        if hint is bool:
            return _parse_boolean(value)
        if hint in (int, float) and not isinstance(value, bool):
            return hint(value)
        if hint is str and isinstance(value, str):
            return value
        if typing.get_origin(hint) is tuple:
            return _parse_texts(value)
    except (TypeError, ValueError):
        pass  # raised below, with the setting's name
    shown = "" if "url" in name else f" {value!r}"
    raise SettingInvalid(
        f"Invalid value{shown} for the setting {name}: it must be {_KINDS.get(hint, 'a list of texts')}.",
        [Fault(name, f"must be {_KINDS.get(hint, 'a list of texts')}")],
    )


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
}


def _parse_boolean(value: Any) -> bool:
    """A boolean, or a word for one."""
    words = {
        "true": True,
        "yes": True,
        "on": True,
        "1": True,
        "false": False,
        "no": False,
        "off": False,
        "0": False,
    }
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def _parse_texts(value: Any) -> tuple[str, ...]:
    """Several texts: a list, a JSON list as text, or one text."""
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else [value]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise TypeError
    return tuple(value)


def _strip_driver(url: str | None) -> str | None:
    """A URI as libpq reads it: SQLAlchemy's also has a driver, `postgresql+psycopg://`."""
    return None if url is None else re.sub(r"^(postgres(?:ql)?)\+\w+(?=://)", r"\1", url)


def _check(fine: object, name: str, advice: str) -> None:
    if not fine:
        raise SettingInvalid(f"Invalid value for the setting {name}: {advice}.", [Fault(name, advice)])
