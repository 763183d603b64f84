"""Pointers of definitions into payloads: the database follows them, so none may lead to a value that is stored sealed."""

from collections.abc import Iterator

from fairlead.errors import DefinitionInvalid, Fault
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.secrets.redact import is_sealed_at, secret_paths, split_path


def list_secret_pointers(definition: Definition | DefinitionSpec) -> list[Fault]:
    """The fields of a definition that point at a secret field of its payloads, or at a value with one."""
    pointers = dict(_iterate_pointers(definition))
    paths = secret_paths(definition.arg_schema) if pointers else []
    return [
        Fault(name, f"points at {pointer}, which is or has a secret field")
        for name, pointer in pointers.items()
        if is_sealed_at(split_path(pointer), paths)
    ]


def unreadable_error(key: str, faults: list[Fault]) -> DefinitionInvalid:
    """The error for a definition that limits or places its jobs by a secret, in a database that encrypts."""
    return DefinitionInvalid(
        f"The definition {key!r} is not valid: {faults[0].path} {faults[0].message}. The database encrypts secrets and cannot "
        "read it: point at another field, such as the name or a hash of the secret.",
        faults,
    )


def _iterate_pointers(definition: Definition | DefinitionSpec) -> Iterator[tuple[str, str]]:
    rates = {"rate": definition.rate, "rate_per_tenant": definition.rate_per_tenant}
    if definition.by_key is not None:
        yield "by_key", definition.by_key.pointer
        rates["by_key.rate"] = definition.by_key.rate
    for name, rate in rates.items():
        if rate is not None and rate.cost is not None:
            yield f"{name}.cost", rate.cost
    if definition.resource_pointer is not None:
        yield "resource_pointer", definition.resource_pointer
