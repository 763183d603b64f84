"""SQL lives in .sql files beside the module that runs it, in sections named `-- name: x`."""

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

SCHEMA = "fairlead"
_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_SCHEMA_WORD = re.compile(rf"\b{SCHEMA}\b")


def queries_beside(module: str) -> SimpleNamespace:
    """The named queries of `x.sql` for the module `x.py`, as attributes."""
    path = Path(module).with_suffix(".sql")
    parts = _NAME.split(path.read_text(encoding="utf-8"))
    names, texts = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: a query is named twice")
    return SimpleNamespace(**{name: text.strip() for name, text in zip(names, texts, strict=True)})


@cache
def in_schema(text: str, schema: str) -> str:
    """The statement with the configured schema's name instead of `fairlead`."""
    return text if schema == SCHEMA else _SCHEMA_WORD.sub(schema, text)
