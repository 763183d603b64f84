"""Name the shards of distributed tables in our statements, so that PostgreSQL and not Citus plans them."""

import re
from collections.abc import Mapping

from fairlead.db.sql import SCHEMA

# A table's name with the word before it, and the word after it, which is its alias or a keyword. What a function returns is the
# type of the table: the type of a shard exists only on the node that holds it.
_NAME = re.compile(
    rf"(?P<before>\b(?:from|join|into|update|using|only)\s+|,\s*)?(?<!returns )\b{SCHEMA}\.(?P<name>\w+)\b(?!\.)"
    r"(?P<after>\s+(?P<word>[a-z_]\w*))?",
    re.IGNORECASE,
)
_KEYWORDS = frozenset(
    [
        "where",
        "set",
        "on",
        "using",
        "order",
        "group",
        "limit",
        "returning",
        "values",
        "select",
        "default",
        "for",
        "left",
        "right",
        "inner",
        "cross",
        "join",
        "natural",
        "full",
        "union",
        "having",
        "window",
        "offset",
        "fetch",
        "tablesample",
        "except",
        "intersect",
        "with",
        "loop",
        "then",
        "into",
        "overriding",
        "end",
        "and",
        "or",
    ]
)
# Statements with lists of tables, which have no aliases.
_LISTS = re.compile(r"\s*(?:truncate|analyze|vacuum|lock|grant|revoke)\b", re.IGNORECASE)


class ShardedTables:
    """The tables of a distributed schema with the names of their shards, and its views with their queries."""

    def __init__(self, shards: Mapping[str, str], views: Mapping[str, str]) -> None:
        self._shards = dict(shards)
        self._views: dict[str, str] = {}
        self._views = {name: self._replace(query) for name, query in views.items()}
        self._known: dict[str, str] = {}

    def name_shards(self, text: str) -> str:
        """The statement with each table replaced by its shard, and each view by its query.

        A table without an alias gets its own name as alias.
        """
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._replace(text)
        return known

    def _replace(self, text: str) -> str:
        may_have_aliases = _LISTS.match(text) is None
        return _NAME.sub(lambda found: self._replace_name(found, may_have_aliases=may_have_aliases), text)

    def _replace_name(self, found: re.Match[str], *, may_have_aliases: bool) -> str:
        name, before, after = found["name"], found["before"] or "", found["after"] or ""
        is_relation = bool(before) and may_have_aliases
        if name in self._shards:
            new = f"{SCHEMA}.{self._shards[name]}"
        elif is_relation and name in self._views:
            new = f"({self._views[name]})"
        else:
            return found[0]
        has_alias = bool(found["word"]) and found["word"].lower() not in _KEYWORDS
        alias = f" as {name}" if is_relation and not has_alias else ""
        return f"{before}{new}{alias}{after}"
