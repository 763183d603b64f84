"""The wrong versions of each stored function: which of them are tried, and which are known to change nothing."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from tests.mutants.generated.rules import LAST, Change, list_changes
from tests.mutants.mutant import ROOT, SOURCE

FUNCTIONS = ROOT / SOURCE / "db" / "functions"
# Names of versions that do what the function does, or that these tests cannot see, each with the reason.
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# Every function has at least FEWEST wrong versions, and a long one another for so many of its lines.
FEWEST = 2
LINES = 25
# How many characters of a change are shown.
MOST = 100


class Version(NamedTuple):
    """A changed source of a stored function."""

    function: str
    name: str
    rule: str
    # what is wrong with it, in a sentence
    wrong: str
    text: str


@cache
def list_sources() -> dict[str, str]:
    """The source of each stored function."""
    return {file.stem: file.read_text() for file in sorted(FUNCTIONS.glob("*.sql"))}


@cache
def list_versions(function: str, source: str) -> list[Version]:
    """All wrong versions of a function: in turns by each rule, in an order that changes elsewhere in the source leave alone."""
    by_rule: dict[str, dict[str, Version]] = defaultdict(dict)
    texts = {source}
    for change in list_changes(source):
        text = f"{source[: change.start]}{change.new}{source[change.end :]}"
        if text not in texts:
            texts.add(text)
            version = _describe(function, source, change, text, by_rule[change.rule])
            by_rule[change.rule][version.name] = version
    rules = sorted(by_rule, key=lambda rule: (rule in LAST, _hash(f"{function} {rule}")))
    ordered = [sorted(by_rule[rule].values(), key=lambda one: _hash(one.name)) for rule in rules]
    first = [ones for rule, ones in zip(rules, ordered, strict=True) if rule not in LAST]
    turns = chain(chain.from_iterable(zip_longest(*first)), chain.from_iterable(ordered[len(first) :]))
    return [one for one in turns if one is not None]


def _describe(function: str, source: str, change: Change, text: str, others: Collection[str]) -> Version:
    old, new = (" ".join(one.split()) for one in (source[change.start : change.end], change.new))
    around = source[source.rfind("\n", 0, change.start) + 1 : source.find("\n", change.end)].strip()
    line = source.count("\n", 0, change.start) + 1
    stem = f"{function}.{change.rule}.{_hash(f'{old} {new} {around}') % 0x10000:04x}"
    name = next(one for one in (stem, *(f"{stem}.{n}" for n in range(2, 99))) if one not in others)
    wrong = f"line {line}: `{_shorten(old)}` → `{_shorten(new)}`"
    return Version(function, name, change.rule, wrong, text)


def _shorten(text: str) -> str:
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def _hash(text: str) -> int:
    return crc32(text.encode())


@cache
def read_equivalent() -> dict[str, str]:
    """The versions that are expected to survive, and why."""
    return {str(name): str(why) for name, why in tomllib.loads(EQUIVALENT.read_text()).items()}


def list_names() -> set[str]:
    """The functions, and all their versions."""
    versions = (one.name for name, source in list_sources().items() for one in list_versions(name, source))
    return {*list_sources(), *versions}


def count_versions(source: str) -> int:
    """How many wrong versions of a function are tried."""
    return max(FEWEST, len(re.findall(r"^[ \t]*(?!--)\S", source, re.MULTILINE)) // LINES)


def choose_versions(
    names: Collection[str], accepts: Callable[[Version], bool], times: int = 1
) -> Iterator[Version]:
    """The versions with these names, or of these functions, or of all; `times` as many as usual.

    Of each function the first ones that PostgreSQL accepts, and those that are expected to survive.
    """
    functions = {name.partition(".")[0] for name in names}
    for function, source in list_sources().items():
        if names and function not in functions:
            continue
        wanted = count_versions(source) * times
        for version in list_versions(function, source):
            known = version.name in read_equivalent()
            is_next = wanted > 0 or known or version.name in names
            if is_next and accepts(version):
                wanted -= not known
                if not names or {function, version.name}.intersection(names):
                    yield version
