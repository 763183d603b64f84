"""SQL lives in .sql files beside the module that runs it, in sections named `-- name: x`."""

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

SCHEMA = "fairlead"
# the place in a stored function of a query that another file has
_INCLUDE = re.compile(r"^[ \t]*-- include ([\w/]+\.sql): (\w+)$", re.MULTILINE)
_PARAMETER = re.compile(r"%\((\w+)\)s")
_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_SCHEMA_WORD = re.compile(rf"\b{SCHEMA}\b")


def queries_beside(module: str) -> SimpleNamespace:
    """The named queries of `x.sql` for the module `x.py`, as attributes."""
    return SimpleNamespace(**_read_queries(Path(module).with_suffix(".sql")))


def _read_queries(path: Path) -> dict[str, str]:
    parts = _NAME.split(path.read_text(encoding="utf-8"))
    names, texts = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: a query is named twice")
    return {name: text.strip() for name, text in zip(names, texts, strict=True)}


def include_queries(text: str) -> str:
    """A stored function's source with the queries that it includes; their parameter `x` is its variable `given_x`."""

    def include(found: re.Match[str]) -> str:
        query = _read_queries(Path(__file__).parents[1] / found[1])[found[2]]
        return _PARAMETER.sub(r"given_\1", query).removesuffix(";").replace("%%", "%")

    return _INCLUDE.sub(include, text)


@cache
def in_schema(text: str, schema: str) -> str:
    """The statement with the configured schema's name instead of `fairlead`."""
    return text if schema == SCHEMA else _SCHEMA_WORD.sub(schema, text)
