"""Definitions: the kinds of work that may be run."""

from collections.abc import Iterable
from dataclasses import asdict

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.definition import Definition, DefinitionSpec

sql = queries_beside(__file__)


async def every(tx: Tx) -> list[Definition]:
    return await tx.all(Definition, sql.every)


async def by_keys(tx: Tx, keys: Iterable[str]) -> dict[str, Definition]:
    """Those of the keys that exist."""
    return {found.key: found for found in await tx.all(Definition, sql.by_keys, {"keys": list(keys)})}


async def put(tx: Tx, spec: DefinitionSpec) -> Definition | None:
    """Make the definition say this; None if it already does."""
    values = asdict(spec) | {
        "arg_schema": json_text(spec.arg_schema),
        "backoff": json_text(asdict(spec.backoff)),
    }
    return await tx.first(Definition, sql.put, values)
