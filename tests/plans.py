"""The plans of statements; on Citus with the names of the tables, not of their shards."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.db.tx import Tx

_SHARD = re.compile(r"_\d{6}$")


async def read_plan(tx: Tx, query: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run a statement, and return all nodes of its plan with what each of them did."""
    [(plan,)] = await tx.values(f"explain (analyze, timing off, format json) {query}", values)
    return list(_walk(plan[0]["Plan"]))


async def read_scans(tx: Tx, query: str, values: Mapping[str, Any], *tables: str) -> list[dict[str, Any]]:
    """The nodes that read these tables."""
    nodes = [node for node in await read_plan(tx, query, values) if node.get("Relation Name") in tables]
    assert nodes
    return nodes


def count_rows(node: Mapping[str, Any]) -> float:
    """The rows that a node came by: those that it read or threw away."""
    return float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    names = {name: _SHARD.sub("", node[name]) for name in ("Relation Name", "Index Name") if name in node}
    yield node | names
    for below in node.get("Plans", []):
        yield from _walk(below)
