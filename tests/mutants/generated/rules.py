"""Rules that make wrong versions of a stored function: each changes one place of its source."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_HIDDEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_TOKEN = re.compile(r"\$\$|\b[a-z]+\b|[^\sa-z]")
_OPENING = ("(", "[", "case")
_CLOSING = (")", "]", "end", "$$", ";")
_AFTER_ORDER = {"limit", "offset", "for", "union", "loop", "rows", "on", "returning"}
_AFTER_CONDITION = _AFTER_ORDER | {
    "and", "or", "then", "from", "where", "returning", "group", "order", "having", "join", "cross", "inner", "left", "on",
    "when", "else", "as", "into", "using", ",",
}  # fmt: skip
_CONDITION = re.compile(r"(?<!end )\b(where|and|or|on|having|if|elsif|when)\s+(?=\S)(?!conflict)")
_GUARD = re.compile(r"(?<!end )\b(?:if|elsif) ([^;]*?) then\b")
_TURNED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "<>": "="}
_BOUND = {"least": "greatest", "greatest": "least"}
_RETURNS = re.compile(r"\breturns ([\w.]+(?:\[\]| precision)?)")

# Rules for functions to which no other rule applies often enough.
LAST = ("error", "answer", "number", "text")


class Change(NamedTuple):
    """What a rule replaces: the characters from `start` to `end`."""

    rule: str
    start: int
    end: int
    new: str


def list_changes(source: str) -> Iterator[Change]:
    """Each change that a rule can make in the body of a function, in the order of the rules.

    Whether PostgreSQL accepts the changed function, and whether it does anything else, is for others to find out.
    """
    sql = _hide(source)
    begin, end = sql.index("$$") + 2, sql.rindex("$$")
    for change in _list_all(sql, source):
        if begin <= change.start and change.end <= end:
            yield change


def _hide(source: str) -> str:
    """The source without comments and texts, each character in its place."""

    def blank(hidden: re.Match[str]) -> str:
        text = hidden[0]
        return " " * len(text) if text.startswith("--") else f"'{'_' * (len(text) - 2)}'"

    return _HIDDEN.sub(blank, source)


def _list_all(sql: str, source: str) -> Iterator[Change]:
    yield from _conditions(sql)
    yield from _replace(
        "lock", sql, r"\s+for (no key |key )?(update|share)( of \w+)?( skip locked)?(?=\s*[;)])", ""
    )
    for found in re.finditer(r" (<=|>=|<>|<|>) ", sql):
        yield Change("comparison", found.start(1), found.end(1), _TURNED[found[1]])
    for found in _GUARD.finditer(sql):
        yield Change("guard", found.start(1), found.end(1), "false")
    yield from _replace("statement", sql, r"\bperform\b[^;]*", "null")
    for found in re.finditer(r"\s+order by ", sql):
        end = _find_end(sql, found.end(), _AFTER_ORDER)
        yield Change("order", found.start(), len(sql[:end].rstrip()), "")
    yield from _replace("wait", sql, r" skip locked\b", "")
    yield from _defaults(sql, source)
    for found in re.finditer(r"\b(least|greatest)(?=\()", sql):
        yield Change("bound", found.start(), found.end(), _BOUND[found[0]])
    yield from _replace("negation", sql, r"\bnot (?!null;|null :|materialized)", "")
    yield from _replace("negation", sql, r"\bis null\b", "is not null")
    yield from _last_resorts(sql)


def _conditions(sql: str) -> Iterator[Change]:
    """Each condition of a `where`, `on`, `when`, `if` that has others beside it, or stands alone after `where`."""
    for found in _CONDITION.finditer(sql):
        start = found.end()
        end = _find_end(sql, start, _AFTER_CONDITION)
        follows = sql[end : end + 4].strip()
        text = sql[start:end]
        if _is_of_between(sql, found.start()) or text.strip() in ("true", "false", "found"):
            continue
        if found[1] in ("if", "elsif", "when") and follows not in ("and", "or"):
            continue
        yield Change(
            "condition", start, start + len(text.rstrip()), "false" if "or" in (found[1], follows) else "true"
        )
        if len(equals := re.findall(r" (= any|=)(?=[ (])", text)) == 1:
            at = start + text.index(f" {equals[0]}") + 1
            yield Change("comparison", at, at + len(equals[0]), "<> all" if equals[0] == "= any" else "<>")


def _is_of_between(sql: str, at: int) -> bool:
    """Whether this `and` belongs to `between x and y`."""
    return re.search(r"\bbetween\s[^;]{1,60}$", sql[max(0, at - 80) : at]) is not None


def _find_end(sql: str, start: int, stops: set[str]) -> int:
    """Where an expression ends: before one of these words, or where a bracket closes that was opened before it."""
    depth = 0
    for token in _TOKEN.finditer(sql, start):
        if depth == 0 and (token[0] in _CLOSING or (token[0] in stops and not _is_name(sql, token))):
            return token.start()
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
    return len(sql)


def _is_name(sql: str, token: re.Match[str]) -> bool:
    """Whether this is a part of a name, or a function."""
    return sql.endswith((".", "_", "distinct "), 0, token.start()) or sql[token.end()] in "._("


def _defaults(sql: str, source: str) -> Iterator[Change]:
    """`coalesce(x, y)` as `(y)` and as `(x)`."""
    for found in re.finditer(r"\bcoalesce\(", sql):
        comma = _find_end(sql, found.end(), {","})
        end = _find_end(sql, comma + 1, set())
        more = "coalesce" if _find_end(sql, comma + 1, {","}) < end else ""
        yield Change("default", found.start(), end + 1, f"{more}({source[comma + 1 : end].strip()})")
        yield Change("default", found.start(), end + 1, f"({source[found.end() : comma]})")


def _last_resorts(sql: str) -> Iterator[Change]:
    """What a short function has, too: numbers, texts, errors, and an answer."""
    begin = sql.index("$$") + 2
    yield from _replace("error", sql, r"\braise exception\b[^;]*", "null")
    if returns := _RETURNS.search(sql):
        if at := re.compile(r"\bbegin\n").search(sql, begin):
            answer = "return" if returns[1] == "void" else "return null"
            yield Change("answer", at.end(), at.end(), f"    {answer};\n")
        else:
            yield Change("answer", begin, sql.rindex("$$"), f" select null::{returns[1]} ")
    for found in re.finditer(r"(?<![\w.'$])\d+(?![\w.'])", sql):
        yield Change("number", found.start(), found.end(), str(int(found[0]) + 1))
    for found in re.finditer(r"'_+'", sql):
        yield Change("text", found.start() + 1, found.start() + 2, "")


def _replace(rule: str, sql: str, pattern: str, new: str) -> Iterator[Change]:
    for found in re.finditer(pattern, sql):
        yield Change(rule, found.start(), found.end(), new)
