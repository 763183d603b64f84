"""The JSON Schema of fairlead.toml: current, in the package, and of one mind with the loaders of the file."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from fairlead import FairleadError, Settings, settings
from fairlead.errors import SettingInvalid
from fairlead.handlers.commands import load_command_specs
from fairlead.handlers.secrets import read_secret_tables
from fairlead.integrations import configuration, engine, source
from fairlead.model.messages.email_settings import read_email_settings
from fairlead.model.secrets.signing import read_signing_secrets
from fairlead.runtime.bridge import read_terms
from tests.tables import each_case

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads(files("fairlead").joinpath("fairlead.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
# Files of other programs, and the rest of a table whose beginning is in another block.
OTHER_TOML = ("[tool.", "[project", "[build-system", "[sources.payments.settings]")

VALID = [
    "",
    'database_url = "postgresql://fairlead@db.internal/jobs"\npool_size = 20\nlock_timeout_seconds = 5',
    'labels = ["gpu=true"]\nhttp_allow = ["10.0.0.0/8"]\nlog_format = "json"\nenable_tick = true',
    (
        '[commands.copy]\nargv = ["/bin/cp", "{payload.from}", { slot = "payload.to", type = "path", root = "/srv" }]\n'
        'umask = "027"\nlimits = { memory_bytes = "512MB" }\nsnooze_exit_codes = { 75 = 60 }'
    ),
    (
        '[commands.tags]\nargv = ["/bin/echo", { each = "payload.tags", join = "," }, { flag = "-v", if = "payload.v" },'
        ' { if = "payload.p", argv = ["{payload.p}"], else = ["x"] }]'
    ),
    (
        '[email]\nprovider = "smtp"\nfrom = "Shop <shop@example.org>"\nhost = "mail.example.org"\n'
        '[email.tenants.acme]\nfrom = "acme@example.org"'
    ),
    '[email.tenants.acme]\nprovider = "resend"\nfrom = "acme@example.org"\napi_key = "env:KEY"',
    '[http.secrets]\na = "env:KEY"\nb = { source = "file:/run/key", tenants = ["acme"] }\n[http.tenants.acme.secrets]\nc = "env:KEY"',
    '[secrets.stripe]\nsource = "env:KEY"\ndefinitions = ["pay"]\n[secrets.b]\nsource = "file:/k"\ndefinitions = ["a"]\ntenants = ["acme"]',
    '[engines.main]\ndriver = "bullmq"\nurl = "redis://127.0.0.1"\nmax_in_flight = 7',
    '[engines.main]\ndriver = "nats"\nservers = ["nats://127.0.0.1"]\nreplicas = 3',
    '[sources.orders]\ndriver = "nats"\nservers = ["nats://127.0.0.1"]\nstream = "ORDERS"\nevent = "order"\ntenant = "acme"',
]
INVALID = [
    'pool_size = "many"',
    "poolsize = 3",
    "max_connections = 3",
    'schema = "pg_jobs"',
    'schema = "Jobs"',
    'labels = ["gpu"]',
    'log_format = "xml"',
    "redact_patterns = [1]",
    "commands = 3",
    '[enginez.main]\ndriver = "nats"',
    "[pool_size]\na = 1",
    "[commands.copy]\ntimeout = 3",
    "[commands.copy]\nargv = []",
    '[commands.copy]\nargv = ["cp"]',
    '[commands."1"]\nargv = ["/bin/cp"]',
    '[commands.copy]\nargv = ["/bin/cp"]\nshell = true',
    '[commands.copy]\nargv = ["/bin/cp"]\ntimeout = 0',
    '[commands.copy]\nargv = ["/bin/cp"]\numask = "1777"',
    '[commands.copy]\nargv = ["/bin/cp"]\nlimits = { memory_bytes = "512 apples" }',
    '[commands.copy]\nargv = ["/bin/cp"]\nlimits = { colour = 1 }',
    '[commands.copy]\nargv = ["/bin/cp"]\nsecrets = { TOKEN = "hunter2" }',
    '[commands.copy]\nargv = ["/bin/cp"]\nsuccess_exit_codes = [256]',
    '[commands.copy]\nargv = ["/bin/cp"]\nsuccess_exit_codes = []',
    '[commands.copy]\nargv = ["/bin/cp"]\nsnooze_exit_codes = { 300 = 60 }',
    '[commands.copy]\nargv = ["/bin/cp", 3]',
    '[commands.copy]\nargv = ["/bin/cp", { slot = "payload.a", colour = "red" }]',
    '[commands.copy]\nargv = ["/bin/cp", { slot = "payload.a", type = "date" }]',
    '[commands.copy]\nargv = ["/bin/cp", { if = "payload.a" }]',
    '[commands.copy]\nargv = ["/bin/cp"]\nbackoff = { base = 3 }',
    '[email]\nprovider = "pigeon"\nfrom = "a@example.org"',
    '[email]\nprovider = "smtp"\nhost = "mail.example.org"',
    '[email]\nprovider = "smtp"\nfrom = "a@example.org"\nhost = "mail.example.org"\nport = 70000',
    '[email]\nprovider = "resend"\nfrom = "a@example.org"\napi_key = "re_123"',
    '[email]\nprovider = "resend"\nfrom = "a@example.org"\napi_key = "env:KEY"\napi_url = "http://api.example.org"',
    '[http.secrets]\na = "hunter2"',
    '[http.secrets]\na = { tenants = ["acme"] }',
    '[http.tenants.acme.secrets]\na = { source = "env:KEY", tenants = ["globex"] }',
    "[http]\ncolour = 3",
    '[secrets.stripe]\nsource = "env:KEY"',
    '[secrets.stripe]\nsource = "env:KEY"\ndefinitions = []',
    '[secrets.stripe]\nsource = "hunter2"\ndefinitions = ["pay"]',
    '[secrets.stripe]\nsource = "env:KEY"\ndefinitions = ["http.request"]',
    '[secrets."a b"]\nsource = "env:KEY"\ndefinitions = ["pay"]',
    '[engines.main]\ndriver = "pigeon"',
    '[engines.main]\nurl = "redis://127.0.0.1"',
    '[engines.main]\ndriver = "nats"\nserver = "nats://127.0.0.1"',
    '[engines.main]\ndriver = "bullmq"\nurl = "redis://127.0.0.1"\nmax_in_flight = 0',
    '[sources.orders]\ndriver = "nats"\nservers = []\nstream = "ORDERS"\nevent = "order"\ntenant = "acme"',
    '[sources.orders]\ndriver = "nats"\nservers = ["nats://127.0.0.1"]\nstream = "ORDERS"\nevent = "order"\ncolour = 1',
]
# The loader takes these, so that files and variables may be written alike; the schema asks for the plain form.
STRICTER = ['pool_size = "20"', "enable_tick = 1", 'labels = "gpu=true"']


def accepts(text: str) -> bool:
    return bool(VALIDATOR.is_valid(tomllib.loads(text)))


def load(path: Path) -> None:
    """Read a fairlead.toml with everything that reads it."""
    settings.load(environ={}, file=path)
    load_command_specs(path)
    document = settings.read_document(path)
    read_email_settings(document)
    read_signing_secrets(document)
    read_secret_tables(document)
    read_terms(configuration.read_connections(path, "engines", engine.DRIVERS))
    source.read_sources(path)


def write(folder: Path, text: str) -> Path:
    path = folder / "fairlead.toml"
    path.write_text(text, "utf-8")
    return path


def test_it_is_current_and_in_the_package() -> None:
    from tests import settings_schema  # noqa: PLC0415 - it imports the clients of all engines

    assert settings_schema.COMMITTED.read_text("utf-8") == settings_schema.generate(), "run make settings"
    assert files("fairlead").joinpath("fairlead.schema.json").is_file()
    assert jsonschema_rs.meta.is_valid(SCHEMA)


def test_it_has_every_setting_with_its_meaning_and_default() -> None:
    from tests import settings_schema  # noqa: PLC0415

    for setting in fields(Settings):
        told = SCHEMA["properties"][setting.name]
        assert told["description"]
        assert ("default" in told) == (setting.default is not None)
    plain = {one.name: settings_schema.json_default(one.default) for one in fields(Settings)}
    assert VALIDATOR.is_valid({name: value for name, value in plain.items() if value is not None})


@each_case("text", VALID)
def test_what_the_loader_takes_is_valid(tmp_path: Path, text: str) -> None:
    load(write(tmp_path, text))
    assert accepts(text)


@each_case("text", INVALID)
def test_what_the_loader_refuses_is_invalid(tmp_path: Path, text: str) -> None:
    with pytest.raises(FairleadError):
        load(write(tmp_path, text))
    assert not accepts(text)


@each_case("text", STRICTER)
def test_it_asks_for_the_plain_form(tmp_path: Path, text: str) -> None:
    load(write(tmp_path, text))
    assert not accepts(text)


def edges() -> Iterator[tuple[str, float, bool]]:
    """Numbers at and beside the bounds that the schema has for settings, and whether it takes them."""
    for name, told in SCHEMA["properties"].items():
        step = 1 if told.get("type") == "integer" else 0.001
        if "minimum" in told:
            yield from ((name, told["minimum"], True), (name, told["minimum"] - step, False))
        if "exclusiveMinimum" in told:
            yield from (
                (name, told["exclusiveMinimum"] + step, True),
                (name, told["exclusiveMinimum"], False),
            )
        if "maximum" in told:
            yield from ((name, told["maximum"], True), (name, told["maximum"] + step, False))


@each_case(("name", "value", "fine"), edges)
def test_a_bound_is_the_loaders(tmp_path: Path, name: str, value: float, *, fine: bool) -> None:
    path = write(tmp_path, f"{name} = {value!r}")

    assert accepts(path.read_text("utf-8")) is fine
    if fine:
        settings.load(environ={}, file=path)
    else:
        with pytest.raises(SettingInvalid) as refused:
            settings.load(environ={}, file=path)
        assert refused.value.faults[0].path == name


def blocks() -> Iterator[tuple[str, str]]:
    """The examples of fairlead.toml in the documentation."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            if not any(mark in block for mark in OTHER_TOML):
                yield page.name, block


@each_case(("page", "block"), blocks)
def test_an_example_of_the_documentation_is_valid(page: str, block: str) -> None:
    document: dict[str, Any] = tomllib.loads(block)
    faults = [f"{list(one.instance_path)}: {one.message}" for one in VALIDATOR.iter_errors(document)]
    assert faults == []
