"""The JSON Schema of fairlead.toml, generated from the settings and the readers of its tables. `make settings` writes it."""

import inspect
import json
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import msgspec

from fairlead import Settings
from fairlead.integrations import engine, source
from fairlead.integrations.bullmq.connection import BullmqOptions
from fairlead.integrations.cloud_tasks import CloudTasksOptions
from fairlead.integrations.nats import NatsEngineOptions
from fairlead.integrations.sqs import SqsEngineOptions
from fairlead.model.access import PEOPLE
from fairlead.model.command import argv_reader, reader
from fairlead.model.command import fields as words
from fairlead.model.command.slot import MAX_ARGUMENT_BYTES, SlotType
from fairlead.model.definition import KEY
from fairlead.model.messages import email_settings, http_call
from fairlead.model.oidc import settings as oidc_settings
from fairlead.model.secrets.reference import NAME
from fairlead.runtime.bridge import MAX_IN_FLIGHT, MOST_IN_FLIGHT
from fairlead.settings import Range

COMMITTED = Path(__file__).parents[1] / "src" / "fairlead" / "fairlead.schema.json"
Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
SECRET: Schema = {
    "type": "string",
    "pattern": f"^(env:{words._NAME.pattern}|file:/.*)$",
    "description": "env:NAME or file:/absolute/path, never the secret itself",
}
SIZE: Schema = {"type": "string", "pattern": f"^(?:{words._SIZE.pattern})$"}
BASE_URL: Schema = {"type": "string", "pattern": "^(https://|http://(127\\.0\\.0\\.1|localhost)([:/]|$))"}
CODES: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
CODE = "0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5]"
SLUG: Schema = {"type": "string", "pattern": f"^{oidc_settings._SLUG.pattern}$"}
# Readers that take a value of one form. Those that functions make, with bounds, are read by `describe_reader`.
READERS: dict[Callable[[Any], Any], Schema] = {
    words.read_text: TEXT,
    words.read_number: {"type": "number"},
    words.read_variable_names: {"type": "array", "items": {**TEXT, "pattern": f"^{words._NAME.pattern}$"}},
    words.read_folder: {**TEXT, "pattern": "^/"},
    words.read_umask: {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 0o777},
            {**TEXT, "pattern": "^(?:0o)?(0?[0-7]{1,3})$"},
        ]
    },
    words.read_account: {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": 2**32 - 2},
            {**TEXT, "pattern": f"^{words._ACCOUNT.pattern}$"},
        ]
    },
    words.read_exit_codes: CODES,
    words.read_secret_source: SECRET,
    email_settings._read_sender: {**TEXT, "pattern": "@", "examples": ["Shop <shop@example.org>"]},
    email_settings._read_host: {**TEXT, "minLength": 1},
    email_settings._read_encryption: {"enum": list(email_settings._PORTS)},
    email_settings._read_line: {**TEXT, "minLength": 1},
    email_settings._read_ascii_word: {**TEXT, "pattern": "^[!-.0-~]([ -.0-~]*)$"},
    email_settings._read_base_url: BASE_URL,
    email_settings._read_boolean: {"type": "boolean"},
    oidc_settings._read_issuer: BASE_URL,
    oidc_settings._read_client_id: {**TEXT, "minLength": 1},
    oidc_settings._read_label: {**TEXT, "minLength": 1, "maxLength": 60},
    oidc_settings._read_scopes: {"type": "array", "items": TEXT, "contains": {"const": "openid"}},
    oidc_settings._read_claim_path: {**TEXT, "minLength": 1, "examples": ["groups", "realm_access.roles"]},
    oidc_settings._read_roles: {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"enum": [str(role) for role in PEOPLE]},
    },
    oidc_settings._read_slug: SLUG,
    oidc_settings._read_tenants: {"type": "object", "minProperties": 1, "additionalProperties": SLUG},
    oidc_settings._read_boolean: {"type": "boolean"},
}
ENGINE_OPTIONS: dict[str, type[msgspec.Struct]] = {
    "bullmq": BullmqOptions,
    "cloud_tasks": CloudTasksOptions,
    "nats": NatsEngineOptions,
    "sqs": SqsEngineOptions,
}


def generate() -> str:
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fairlead.toml",
        "description": "The settings of Fairlead, and the tables that configure single features.",
        "type": "object",
        "properties": {
            **{setting.name: describe_setting(setting.name) for setting in fields(Settings)},
            "commands": describe_commands(),
            "email": describe_email(),
            "http": describe_http(),
            "oidc": describe_oidc(),
            "secrets": describe_secrets(),
            "engines": describe_connections(engine.DRIVERS, ENGINE_OPTIONS, in_flight=True),
            "sources": describe_connections(
                source.DRIVERS,
                {name: import_module(one.module).OPTIONS for name, one in source.DRIVERS.items()},
            ),
        },
        "additionalProperties": False,
        "$defs": {"argument": describe_argument()},
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# Settings


def describe_setting(name: str) -> Schema:
    setting = next(one for one in fields(Settings) if one.name == name)
    hint = typing.get_type_hints(Settings)[name]
    if isinstance(hint, UnionType):
        [hint] = (one for one in typing.get_args(hint) if one is not NoneType)
    if typing.get_origin(hint) is tuple:
        shape: Schema = {"type": "array", "items": TEXT}
    else:
        shape = {"type": {bool: "boolean", int: "integer", float: "number"}.get(hint, "string")}
    if within := setting.metadata["within"]:
        shape |= describe_range(within)
    shape |= SPECIAL.get(name, {})
    given = {} if setting.default is None else {"default": json_default(setting.default)}
    return {"description": setting.metadata["about"].replace("`", ""), **shape, **given}


SPECIAL: dict[str, Schema] = {
    "schema": {"pattern": "^(?!pg_)[a-z_][a-z0-9_]{0,47}$"},
    "labels": {"items": {**TEXT, "pattern": "="}},
    "log_format": {"enum": ["console", "json"]},
}


def json_default(value: object) -> object:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def describe_range(within: Range) -> Schema:
    if within.zero:
        return {"anyOf": [{"const": 0}, {"minimum": within.least}]}
    least = {"minimum": within.least} if within.above is None else {"exclusiveMinimum": within.above}
    return least if within.most == math.inf else {**least, "maximum": within.most}


# Tables


def describe_reader(read: Callable[[Any], Any]) -> Schema:
    """The form of the values that a reader of a field takes."""
    if read in READERS:
        return READERS[read]
    bounds = inspect.getclosurevars(read).nonlocals
    limits = {"minimum": bounds["least"], "maximum": bounds["most"]}
    match read.__qualname__.partition(".")[0]:
        case "integer_reader":
            return {"type": "integer", **limits}
        case "seconds_reader":
            return {"type": "number", **limits}
        case "size_reader":
            return {"anyOf": [{"type": "integer", **limits}, SIZE]}
    raise ValueError(f"{read.__qualname__} has no schema: add it to READERS")


def describe_table(readers: Mapping[str, Callable[[Any], Any]]) -> Schema:
    return {
        "type": "object",
        "properties": {name: describe_reader(read) for name, read in readers.items()},
        "additionalProperties": False,
    }


def by_name(of: Schema, pattern: str | None = None) -> Schema:
    """A table whose names are the user's own."""
    names = {"propertyNames": {"pattern": f"^(?:{pattern})$"}} if pattern else {}
    return {"type": "object", **names, "additionalProperties": of}


def describe_commands() -> Schema:
    command = describe_table(reader._PLAIN)
    command["properties"] |= {
        "success_exit_codes": {**CODES, "minItems": 1},
        "argv": {
            "type": "array",
            "prefixItems": [{**TEXT, "pattern": "^/.*[^/]$"}],
            "items": {"$ref": "#/$defs/argument"},
            "minItems": 1,
        },
        "set_env": by_name(TEXT, words._NAME.pattern),
        "secrets": by_name(SECRET, words._NAME.pattern),
        "limits": describe_table(reader._LIMITS),
        "snooze_exit_codes": by_name({"type": "number", "minimum": 0, "maximum": reader._YEAR}, CODE),
        "arg_schema": {"type": "object"},
        "backoff": describe_table(reader._BACKOFF),
    }
    command["required"] = ["argv"]
    return {"description": "Programs that a worker may run as jobs.", **by_name(command, KEY.pattern)}


def describe_argument() -> Schema:
    """A part of an argv: text, or one of four tables."""
    parts: Schema = {"type": "array", "items": {"$ref": "#/$defs/argument"}}
    known: dict[str, Schema] = {
        "type": {"enum": [str(one) for one in SlotType]},
        "root": {**TEXT, "pattern": "^/"},
        "values": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
        "allow_dash": {"type": "boolean"},
        "max_length": {"type": "integer", "minimum": 1, "maximum": MAX_ARGUMENT_BYTES},
        "argv": parts,
        "else": parts,
        "join": {**TEXT, "minLength": 1},
        **dict.fromkeys(("prefix", "flag", "if", "slot", "each"), TEXT),
    }
    required = {"flag": ["flag", "if"], "slot": ["slot"], "each": ["each"], "if": ["if", "argv"]}
    tables = [
        {
            "type": "object",
            "properties": {name: known[name] for name in sorted(names)},
            "required": required[kind],
            "additionalProperties": False,
        }
        for kind, names in argv_reader._KNOWN.items()
    ]
    return {"anyOf": [TEXT, *tables]}


def describe_email() -> Schema:
    """The system's provider, and tables of tenants that override single fields of it or name another."""
    providers = []
    for name, (_, readers, required) in email_settings._PROVIDERS.items():
        table = describe_table({**email_settings._COMMON, **readers})
        table["properties"] |= {"provider": {"const": name}, "tenants": {"type": "object"}}
        providers.append({**table, "required": ["provider", "from", *required]})
    only_tenants = {
        "type": "object",
        "properties": {"tenants": {"type": "object"}},
        "additionalProperties": False,
    }
    fields_of_all = {
        name: describe_reader(read)
        for _, readers, _ in email_settings._PROVIDERS.values()
        for name, read in {**email_settings._COMMON, **readers}.items()
    }
    tenant = {
        "type": "object",
        "properties": {"provider": {"enum": list(email_settings._PROVIDERS)}, **fields_of_all},
        "additionalProperties": False,
    }
    return {
        "description": "How EMAIL_SEND sends messages.",
        "type": "object",
        "properties": {"tenants": by_name(tenant)},
        "anyOf": [*providers, only_tenants],
    }


def describe_http() -> Schema:
    texts: Schema = {"type": "array", "items": {**TEXT, "minLength": 1}}

    def secrets(**more: Schema) -> Schema:
        bound = {
            "type": "object",
            "properties": {"source": SECRET, "urls": texts, **more},
            "required": ["source"],
            "additionalProperties": False,
        }
        return by_name({"anyOf": [SECRET, bound]})

    tenant = {"type": "object", "properties": {"secrets": secrets()}, "additionalProperties": False}
    return {
        "description": "Secrets that sign the requests of http.request.",
        "type": "object",
        "properties": {"secrets": secrets(tenants=texts), "tenants": by_name(tenant)},
        "additionalProperties": False,
    }


def describe_oidc() -> Schema:
    table = describe_table(oidc_settings.READERS)
    table["required"] = list(oidc_settings.REQUIRED)
    return {
        "description": "Identity providers with which people sign in.",
        **by_name(table, oidc_settings.NAME.pattern),
    }


def describe_secrets() -> Schema:
    texts: Schema = {"type": "array", "items": TEXT, "minItems": 1}
    # `http.request` is refused
    definitions = {**texts, "items": {**TEXT, "not": {"const": http_call.KEY}}}
    table = {
        "type": "object",
        "properties": {"source": SECRET, "definitions": definitions, "tenants": texts},
        "required": ["source", "definitions"],
        "additionalProperties": False,
    }
    return {
        "description": "Secrets that payloads may refer to, and the definitions and tenants whose jobs may.",
        "type": "object",
        "patternProperties": {f"^{NAME.pattern}$": table},
        "additionalProperties": False,
    }


def describe_connections(
    drivers: Mapping[str, Any], options: Mapping[str, type[msgspec.Struct]], *, in_flight: bool = False
) -> Schema:
    """[engines.NAME] or [sources.NAME]: a driver, and the options of that driver."""
    tables = []
    for name in drivers:
        table = msgspec.json.schema(options[name])
        [own] = table["$defs"].values()
        own = {key: value for key, value in own.items() if key not in ("title", "description")}
        own["properties"] = {field: allow_reference(one) for field, one in own["properties"].items()}
        if in_flight:
            own["properties"][MAX_IN_FLIGHT] = {"type": "integer", "minimum": 1, "maximum": MOST_IN_FLIGHT}
        own["properties"] = {"driver": {"const": name}, **own["properties"]}
        tables.append({**own, "required": ["driver", *own.get("required", [])]})
    return by_name({"anyOf": tables})


def allow_reference(field: Schema) -> Schema:
    """Every text may be env:NAME or file:/path instead, also one that must fit a pattern."""
    return {"anyOf": [field, SECRET]} if "pattern" in field else field


if __name__ == "__main__":
    COMMITTED.write_text(generate(), "utf-8")
