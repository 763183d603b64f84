"""A process's cache of definitions: compiled validators, each for one version."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import msgspec

from fairlead.errors import PayloadInvalid, SecretsRequired
from fairlead.model.definition import Definition, Validator, check_payload, compile_schema
from fairlead.model.job import NewJob
from fairlead.model.payload import encode
from fairlead.model.quota import settings_for_jobs
from fairlead.model.secrets.length import check_secrets
from fairlead.model.secrets.redact import check_references, secret_paths
from fairlead.model.secrets.reference import MARK
from fairlead.model.secrets.sealed_payload import MARK as SEALED
from fairlead.model.secrets.sealed_payload import refuse_sealed
from fairlead.model.template.path import look_up, parse_pointer
from fairlead.settings import Settings

UNKNOWN = 0


class CachedDefinition(msgspec.Struct, frozen=True):
    version: int
    compiled: Validator
    # the pointer to the resource's name in a payload
    resource_pointer: str | None = None
    # the paths of secrets in a payload
    secret_paths: tuple[str, ...] = ()


class Catalog:
    """Validators by definition. Each enqueue sends the version that it was validated against, so the
    database detects a stale entry; entries never expire by time.
    """

    def __init__(self, settings: Settings) -> None:
        self.max_bytes = settings.max_payload_bytes
        self.max_depth = settings.max_payload_depth
        self.quotas = settings_for_jobs(settings)
        self._known: dict[str, CachedDefinition] = {}
        self._ids: dict[tuple[str, str], tuple[UUID, UUID]] = {}

    def learn(
        self, key: str, version: int, arg_schema: Any, resource_pointer: str | None = None
    ) -> CachedDefinition:
        """Compile a definition's schema, unless this version is cached."""
        known = self._known.get(key)
        if known is None or known.version != version:
            compiled, paths = compile_schema(arg_schema), tuple(secret_paths(arg_schema))
            known = self._known[key] = CachedDefinition(version, compiled, resource_pointer, paths)
        return known

    def learn_all(self, definitions: dict[str, Definition]) -> None:
        for found in definitions.values():
            self.learn(found.key, found.version, found.arg_schema, found.resource_pointer)

    def find_resource(self, new: NewJob) -> tuple[str, str] | None:
        """The path at which a request names its resource, and the name: for the error about an unknown one."""
        if new.resource_id is not None:
            return "resource_id", str(new.resource_id)
        known = self._known.get(new.definition)
        if known is None or known.resource_pointer is None:
            return None
        named = look_up(parse_pointer(known.resource_pointer), new.payload)
        return (known.resource_pointer, named) if isinstance(named, str) else None

    def learn_ids(self, new: NewJob, tenant_id: UUID, definition_id: UUID) -> None:
        """Cache the ids of a tenant and a definition. Neither is ever deleted, so they stay valid."""
        self._ids[new.tenant, new.definition] = tenant_id, definition_id

    def ids(self, new: NewJob) -> tuple[UUID, UUID] | None:
        """The ids of the tenant and the definition; None if they are not cached."""
        return self._ids.get((new.tenant, new.definition))

    def find_secret_paths(self, key: str) -> tuple[str, ...]:
        """The paths of secrets in payloads of a definition, as far as this process knows it."""
        known = self._known.get(key)
        return () if known is None else known.secret_paths

    def prepare(self, new: NewJob, current: Collection[str] = ()) -> tuple[bytes, int]:
        """The payload as JSON and the version it was validated against.

        UNKNOWN if no version is cached, or if the cached one refuses the payload but may be outdated: the enqueue then
        returns the current definition. Only definitions in `current` are known to be up to date, and refuse.
        """
        payload, text = encode(new.payload, max_bytes=self.max_bytes, max_depth=self.max_depth)
        known = self._known.get(new.definition)
        if known is None:
            return text, UNKNOWN
        try:
            if SEALED in text:
                refuse_sealed(new.definition, payload)
            check_payload(known.compiled, new.definition, payload, size=len(text))
            if known.secret_paths:
                check_secrets(new.definition, payload, known.secret_paths)
            if MARK in text:
                check_references(new.definition, payload, known.secret_paths)
        except (PayloadInvalid, SecretsRequired):
            if new.definition in current:
                raise
            return text, UNKNOWN
        return text, known.version
