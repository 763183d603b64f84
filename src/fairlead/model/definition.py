"""A definition: a type of job, and the schema of its payload."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import jsonschema_rs
import msgspec

from fairlead.errors import (
    DefinitionInvalid,
    FairleadError,
    Fault,
    PayloadInvalid,
    PayloadTooCostly,
    SchemaTooCostly,
)
from fairlead.model.command.slot import PATTERN_WORDS
from fairlead.model.field import Internal
from fairlead.model.flow import KeyLimit, Rate
from fairlead.model.json_extent import extent_of
from fairlead.model.labels import find_labels_flaw
from fairlead.model.outcome import Backoff
from fairlead.model.payload import encode, find_storage_flaw, json_pointer
from fairlead.model.schema_cost import UNIQUE_CHECKS, SchemaCost, TooCostly, compute_cost
from fairlead.model.secrets.redact import has_marks
from fairlead.model.secrets.reference import accept_references

KEY = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,127}")
KEY_WORDS = "must begin with a letter and have up to 128 letters, digits, dots, underscores and hyphens"
MAX_SCHEMA_BYTES = 262_144
MAX_PATTERN_BYTES = 4_194_304
# Per instance, since one check holds the event loop: about 0.1 s for checks, and in the worst case 0.2 s for patterns.
MOST_CHECKS = 4_000_000
MOST_MATCHED = 8_000_000
# The cost of comparing two numbers, in checks; each pair is compared twice.
COMPARED, HUGE_COMPARED = 10, 200
# Values copied into the errors of one instance: about 0.05 s, and 20 MB.
MOST_COPIED = 200_000
# The most checks at one place of an instance for which errors are listed: an error takes about 3 µs for each of them.
MOST_EXPLAINED_CHECKS = 1000
MAX_FAULTS = 20
MAX_TEXT = 10_000
MAX_RUNNING = 2_147_483_647
MAX_QUEUE = 512
MAX_SLOTS = 10_000


class Kind(StrEnum):
    FUNCTION = "function"
    COMMAND = "command"
    HOST = "host"
    WORKFLOW = "workflow"
    # handed to workers elsewhere by `fairlead bridge`
    DELIVERED = "delivered"
    BULLMQ = "bullmq"


# The kinds that have an engine and a queue.
ENGINE_KINDS = frozenset({Kind.DELIVERED, Kind.BULLMQ})


KINDS_WITH_ENGINE = " and ".join(sorted(ENGINE_KINDS))
# The queue of a definition that names none.
DEFAULT_QUEUE = "{definition}"
PLACEHOLDERS = ("tenant", "tenant_id", "definition", "host")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def find_placeholder_flaw(queue: str) -> str | None:
    """Why the name of a queue cannot be filled in, or None."""
    rest = _PLACEHOLDER.sub("", queue)
    if "{" in rest or "}" in rest or any(name not in PLACEHOLDERS for name in _PLACEHOLDER.findall(queue)):
        known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        return f"may have only these placeholders: {known}"
    return None


def fill_queue(queue: str | None, values: Mapping[str, str]) -> str:
    """The name of a queue, with its placeholders filled in."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], queue or DEFAULT_QUEUE)


class DefinitionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a definition that a user sets."""

    key: str
    description: str = ""
    kind: Kind = Kind.FUNCTION
    arg_schema: Any = msgspec.field(default_factory=dict)
    timeout_seconds: int = 3600
    max_attempts: int = 3
    backoff: Backoff = Backoff()
    max_running: int | None = None
    max_running_per_tenant: int | None = None
    rate: Rate | None = None
    rate_per_tenant: Rate | None = None
    by_key: KeyLimit | None = None
    slots: Annotated[
        int, msgspec.Meta(description="How many of its worker's slots an attempt takes: 1 to 10000.")
    ] = 1
    requires: (
        Annotated[
            dict[str, str], msgspec.Meta(description="Labels that a worker must have, such as gpu: true.")
        ]
        | None
    ) = None
    prefers: (
        Annotated[
            dict[str, str],
            msgspec.Meta(description="Labels of workers that come first; others wait a while."),
        ]
        | None
    ) = None
    default_priority: int = 100
    resource_pointer: str | None = None
    audit_action: str | None = "JOB_SUCCEEDED"
    retention_days: int | None = None
    is_active: bool = True
    # of a definition whose jobs an engine delivers: the engine's table in fairlead.toml, and the queue there
    engine: str | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        """Raise DefinitionInvalid with every fault that the database would refuse."""
        checks = {
            "key": bool(KEY.fullmatch(self.key)) or KEY_WORDS,
            "timeout_seconds": 1 <= self.timeout_seconds <= 2_592_000 or "must be 1 to 2592000",
            "max_attempts": 1 <= self.max_attempts <= 1000 or "must be 1 to 1000",
            "max_running": self.max_running is None
            or 0 < self.max_running <= MAX_RUNNING
            or "must be 1 or more, or left out",
            "max_running_per_tenant": self.max_running_per_tenant is None
            or 0 < self.max_running_per_tenant <= MAX_RUNNING
            or "must be 1 or more, or left out",
            "slots": 1 <= self.slots <= MAX_SLOTS or f"must be 1 to {MAX_SLOTS}",
            "requires": self._find_labels_flaw(self.requires) or True,
            "prefers": self._find_labels_flaw(self.prefers) or True,
            "default_priority": abs(self.default_priority) <= 1_000_000 or "must be -1000000 to 1000000",
            "retention_days": self.retention_days is None
            or 0 < self.retention_days <= 36_500
            or "must be 1 to 36500, or left out",
            "resource_pointer": self.resource_pointer is None
            or self.resource_pointer.startswith("/")
            or "must be a JSON pointer such as /serverInstanceId",
            "engine": self._find_engine_flaw() or True,
            "queue": self._find_queue_flaw() or True,
        }
        texts = {name: getattr(self, name) for name in ("description", "resource_pointer", "audit_action")}
        checks |= {
            name: f"must have at most {MAX_TEXT} characters"
            for name, text in texts.items()
            if text and len(text) > MAX_TEXT
        }
        checks |= {name: why for name, text in texts.items() if text and (why := find_storage_flaw(text))}
        if faults := [Fault(name, fine) for name, fine in checks.items() if isinstance(fine, str)]:
            raise DefinitionInvalid(
                f"The definition {self.key!r} is not valid: {faults[0].path} {faults[0].message}.", faults
            )
        compile_schema(self.arg_schema)

    def _find_labels_flaw(self, labels: dict[str, str] | None) -> str | None:
        if labels and self.kind in ENGINE_KINDS:
            return (
                f"is not for the kinds {KINDS_WITH_ENGINE}, whose workers have no labels here: leave it out"
            )
        return find_labels_flaw(labels or {})

    def _find_engine_flaw(self) -> str | None:
        if self.engine is None:
            return "must name an engine of fairlead.toml" if self.kind is Kind.DELIVERED else None
        if self.kind not in ENGINE_KINDS:
            return f"is only for the kinds {KINDS_WITH_ENGINE}: leave it out"
        return None if KEY.fullmatch(self.engine) else KEY_WORDS

    def _find_queue_flaw(self) -> str | None:
        if self.queue is None:
            return None
        if self.kind not in ENGINE_KINDS:
            return f"is only for the kinds {KINDS_WITH_ENGINE}: leave it out"
        if not 0 < len(self.queue) <= MAX_QUEUE:
            return f"must have 1 to {MAX_QUEUE} characters"
        return find_storage_flaw(self.queue) or find_placeholder_flaw(self.queue)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as it is stored."""

    id: UUID
    key: str
    version: int
    description: str
    kind: Kind
    arg_schema: Any
    timeout_seconds: int
    max_attempts: int
    backoff: Backoff
    max_running: int | None
    max_running_per_tenant: int | None
    rate: Rate | None
    rate_per_tenant: Rate | None
    by_key: KeyLimit | None
    slots: int
    requires: dict[str, str] | None
    prefers: dict[str, str] | None
    default_priority: int
    resource_pointer: str | None
    audit_action: str | None
    retention_days: int | None
    is_active: bool
    engine: str | None
    queue: str | None
    paused_at: datetime | None
    paused_by: str | None
    pause_note: str | None
    created_at: datetime
    updated_at: datetime
    # the paths of secrets in a payload, derived from arg_schema: see model/redact.py
    secret_paths: Internal[tuple[str, ...]] = ()
    only_tenants: Annotated[
        tuple[UUID, ...] | None,
        msgspec.Meta(
            description="The tenants that may use it; null for all tenants, and for callers that are not super admins."
        ),
    ] = None

    def is_for(self, tenant_id: UUID) -> bool:
        """Whether a tenant may use it."""
        return self.only_tenants is None or tenant_id in self.only_tenants


class Validator(msgspec.Struct, frozen=True):
    """A compiled JSON Schema, and the most that validating one value of an instance can cost."""

    compiled: jsonschema_rs.Draft202012Validator
    cost: SchemaCost

    def is_valid(self, instance: Any, size: int | None = None) -> bool:
        """Whether the instance is valid; PayloadTooCostly if the check would take too long.

        `size` is its length as JSON text, if known: values are fewer than bytes, so most instances need no counting.
        """
        cost = self.cost
        depends = cost.deepest is not None or cost.unique
        if depends or size is None or (size + 1) * (cost.checks + cost.states) > MOST_CHECKS:
            self._require_affordable(instance)
        return bool(self.compiled.is_valid(instance))

    def _require_affordable(self, instance: Any) -> None:
        extent = extent_of(instance)
        deepest = self.cost.deepest
        if deepest is not None and extent.depth > deepest:
            raise payload_too_costly(
                f"it is nested {extent.depth} levels deep, and the limit for this schema is {deepest}"
            )
        checks, matched = extent.values * self.cost.checks, extent.characters * self.cost.states
        if checks > MOST_CHECKS:
            raise payload_too_costly(f"it may take {checks} checks, and the limit is {MOST_CHECKS}")
        compared = extent.long_numbers * (
            COMPARED * extent.long_numbers + HUGE_COMPARED * extent.huge_numbers
        )
        if self.cost.unique and compared * (self.cost.checks // UNIQUE_CHECKS + 1) > MOST_CHECKS:
            raise payload_too_costly(
                f"it has {extent.long_numbers} numbers beyond 2^53 in lists with uniqueItems"
            )
        if matched > MOST_MATCHED:
            raise payload_too_costly(
                f"its patterns may take {matched} steps, and the limit is {MOST_MATCHED}"
            )

    def errors(self, instance: Any) -> Iterator[jsonschema_rs.ValidationError]:
        """The validation errors. Each one copies the value it is about, and the errors of the parts of its schema.

        So large instances, and schemas with many alternatives in one place, are refused.
        """
        if self.cost.checks > MOST_EXPLAINED_CHECKS:
            raise payload_too_costly("it does not fit, and the schema is too complex to report where")
        if extent_of(instance).held * self.cost.checks > MOST_COPIED:
            raise payload_too_costly("it does not fit, and is too large to report where")
        return iter(self.compiled.iter_errors(instance))


def payload_too_costly(why: str) -> PayloadTooCostly:
    return PayloadTooCostly(
        f"Cannot check the payload against its schema: {why}. Send a smaller payload, or simplify the schema.",
        [Fault("", why)],
    )


def compile_schema(schema: Any) -> Validator:
    """Compile a JSON Schema (2020-12) that fetches no reference and whose validation time is bounded."""
    if not isinstance(schema, dict | bool):
        raise DefinitionInvalid(
            "arg_schema must be a JSON Schema: an object, or true or false.",
            [Fault("arg_schema", "must be an object, true or false")],
        )
    try:
        plain, _ = encode(schema, max_bytes=MAX_SCHEMA_BYTES)
        cost = compute_cost(plain)
        compiled = _build_validator(schema)
    except TooCostly as error:
        raise _costly_schema(error) from None
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise _bad_schema(str(error)) from error
    except FairleadError as error:
        raise _bad_schema(error.message) from error
    if has_marks(schema):
        # pointers into a marked object do not lead there in the changed schema: such fields accept no references
        with contextlib.suppress(jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            compiled = _build_validator(accept_references(schema))
    return Validator(compiled, cost)


def _build_validator(schema: Any) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema,
        validate_formats=True,
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
        mask="the value",  # error messages may be logged; a payload's values must not be
    )


def _costly_schema(error: TooCostly) -> SchemaTooCostly:
    told = f"{error.where or '/'}: {error.message}"
    return SchemaTooCostly(f"arg_schema may take too long to check: {told}.", [Fault("arg_schema", told)])


def _bad_schema(why: str) -> DefinitionInvalid:
    line = why.strip().splitlines()[0] if why.strip() else "it does not compile"
    return DefinitionInvalid(
        f"arg_schema is not a usable JSON Schema (2020-12): {line}", [Fault("arg_schema", line)]
    )


def describe_schema_error(error: jsonschema_rs.ValidationError) -> str:
    """A validation error in words; a pattern of a command's slot has its own words."""
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Pattern):
        return PATTERN_WORDS.get(error.kind.pattern, error.message)
    return error.message


def check_payload(schema: Validator, key: str, payload: Any, *, size: int | None = None) -> None:
    """Raise PayloadInvalid, with the path of each fault, unless the payload fits the definition's schema.

    `size` is the payload's length as JSON text, if known.
    """
    if not isinstance(payload, dict):
        raise PayloadInvalid(f"The payload of {key} must be a JSON object.", [Fault("", "must be an object")])
    if schema.is_valid(payload, size):
        return
    faults = [
        Fault(json_pointer(error.instance_path), describe_schema_error(error))
        for error in islice(schema.errors(payload), MAX_FAULTS)
    ]
    first = faults[0]
    raise PayloadInvalid(f"The payload does not fit {key}: {first.path or '/'}: {first.message}", faults)
