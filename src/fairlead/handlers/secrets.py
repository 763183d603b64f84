"""How a worker resolves references to secrets: from the sources in its own fairlead.toml, or by the application's function."""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead.errors import Fault, SettingInvalid, SignatureInvalid
from fairlead.handlers.commands import SecretMissing, check_secret, read_secret
from fairlead.handlers.context import Context
from fairlead.model.command.fields import read_secret_source
from fairlead.model.command.spec import SecretSource
from fairlead.model.messages import http_call
from fairlead.model.secrets.length import SHORTEST_SECRET
from fairlead.model.secrets.reference import NAME, NAME_WORDS
from fairlead.model.template.path import Flaw
from fairlead.settings import read_document

# How long the application's function may take for one secret.
SECONDS = 30.0

# Returns the secret's text for a name, or None if there is none.
ResolveSecret = Callable[[str, Context], str | Awaitable[str | None] | None]


class SecretRefused(Exception):
    """The job may not use the secret. The message names it and the cause, never its value."""


class NamedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret of fairlead.toml: where it is, and the jobs that may refer to it (tenants None: of all tenants)."""

    source: SecretSource
    definitions: tuple[str, ...]
    tenants: tuple[str, ...] | None = None


class SecretResolver:
    """Finds the texts of secrets for a job. It keeps none: each attempt reads the current ones."""

    def __init__(self) -> None:
        self.sources: Mapping[str, NamedSecret] = {}
        self._function: ResolveSecret | None = None

    def use(self, function: ResolveSecret) -> None:
        """Ask this function for the secrets that fairlead.toml does not have."""
        if not callable(function):
            raise SignatureInvalid(f"A resolver of secrets must be a function, not {function!r}.")
        if self._function is not None:
            raise SignatureInvalid(
                "This Fairlead has a resolver of secrets already: use one function for all."
            )
        self._function = function

    async def resolve(self, names: Iterable[str], ctx: Context) -> dict[str, str]:
        """The texts of secrets. SecretMissing or SecretRefused for the first one that the job cannot have."""
        return {name: await self._resolve_one(name, ctx) for name in names}

    async def _resolve_one(self, name: str, ctx: Context) -> str:
        if (known := self.sources.get(name)) is not None:
            _require_allowed(name, known, ctx)
            text: Any = read_secret(known.source, os.environ)
        elif self._function is not None:
            text = await self._call(self._function, name, ctx)
        else:
            raise SecretMissing(
                f"this worker has no secret {name}: add [secrets.{name}] to its fairlead.toml"
            )
        if text is None:
            raise SecretMissing(f"the function that resolves secrets has none with the name {name}")
        if not isinstance(text, str):
            raise SecretMissing(f"the function that resolves secrets returned no text for {name}")
        if len(text) < SHORTEST_SECRET:
            raise SecretMissing(f"the secret {name} has fewer than {SHORTEST_SECRET} characters")
        return text

    async def _call(self, function: ResolveSecret, name: str, ctx: Context) -> str | None:
        try:
            async with asyncio.timeout(SECONDS):
                found = await asyncio.to_thread(function, name, ctx)
                return await found if inspect.isawaitable(found) else found
        except TimeoutError:
            raise SecretMissing(f"the function that resolves secrets took too long for {name}") from None
        except Exception as error:  # noqa: BLE001 - its message may have the secret
            kind = type(error).__name__
            raise SecretMissing(f"the function that resolves secrets raised {kind} for {name}") from None


def _require_allowed(name: str, known: NamedSecret, ctx: Context) -> None:
    if ctx.definition_key not in known.definitions:
        raise SecretRefused(f"[secrets.{name}] does not list the definition {ctx.definition_key}")
    if known.tenants is not None and ctx.tenant not in known.tenants:
        raise SecretRefused(f"[secrets.{name}] does not list the tenant {ctx.tenant}")


def load_secrets(path: Path) -> dict[str, NamedSecret]:
    """The secrets of a fairlead.toml, each checked and readable; none if there is no file."""
    found = read_secret_tables(read_document(path))
    for name, one in found.items():
        check_secret(f"secrets.{name}", one.source)
    return found


def read_secret_tables(document: Mapping[str, Any]) -> dict[str, NamedSecret]:
    """The secrets as a fairlead.toml describes them, without checking whether they can be read here."""
    tables = document.get("secrets", {})
    if not isinstance(tables, dict):
        raise _invalid("secrets", "must be tables, such as [secrets.stripe]")
    return {name: _read_table(name, table) for name, table in tables.items()}


def _read_table(name: str, table: Any) -> NamedSecret:
    where = f"secrets.{name}"
    if not NAME.fullmatch(name):
        raise _invalid(where, f"the name {NAME_WORDS}")
    if not isinstance(table, dict) or table.keys() - {"source", "definitions", "tenants"}:
        raise _invalid(where, "must be a table with source, definitions and, if wanted, tenants")
    try:
        source = read_secret_source(table.get("source"))
    except Flaw as error:
        raise _invalid(f"{where}.source", str(error)) from None
    definitions = _read_texts(f"{where}.definitions", table.get("definitions"))
    if http_call.KEY in definitions:
        why = f"must not have {http_call.KEY}: callers choose the host that would receive the secret"
        raise _invalid(f"{where}.definitions", why)
    tenants = _read_texts(f"{where}.tenants", table["tenants"]) if "tenants" in table else None
    return NamedSecret(source=source, definitions=definitions, tenants=tenants)


def _read_texts(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise _invalid(where, "must be a list of texts with at least one")
    return tuple(value)


def _invalid(where: str, why: str) -> SettingInvalid:
    return SettingInvalid(f"{where}: {why}.", [Fault(where, why)])
