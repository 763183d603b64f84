"""A safety check of the allowlist: the code that a shell or an interpreter runs is literal, never from a payload."""

import re
from collections.abc import Iterable, Iterator

from fairlead.model.command.argv_parts import (
    ArgvFlag,
    ArgvText,
    ConditionalParts,
    JoinedItems,
    Part,
    RepeatedParts,
)

# Without the digits of a version: python3.12 is python.
_RUNNERS = frozenset(
    re.findall(
        r"\w+",
        "sh bash dash ash ksh mksh zsh fish csh tcsh busybox python pypy perl ruby node php lua awk gawk mawk tclsh "
        "env sudo su doas xargs nice ionice nohup setsid timeout stdbuf chroot",
    )
)
_VERSION = re.compile(r"[0-9.]+$")
# options, variables and numbers come before the program: nice -n 5 env LANG=C sh
_BEFORE = re.compile(r"-|\w+=\S*$|[0-9.]+[smhd]?$")


def find_interpreter_flaws(executable: str, parts: Iterable[Part]) -> Iterator[str]:
    """Faults of parts that let a payload choose the code that a shell or an interpreter runs."""
    words = _words(parts)
    runner = executable
    while _is_runner(runner):
        word = next((word for word in words if word is None or not _BEFORE.match(word)), "")
        if word is None:
            yield (
                f"the code that {runner} runs must be literal: pass the payload's values as arguments after it, as in "
                '["/bin/sh", "-c", "echo \\"$1\\"", "sh", "{payload.text}"]'
            )
            return
        runner = word


def _is_runner(word: str) -> bool:
    return _VERSION.sub("", word.rpartition("/")[2]) in _RUNNERS


def _words(parts: Iterable[Part]) -> Iterator[str | None]:
    """The words in order; None for a word that contains a payload's value."""
    for part in parts:
        match part:
            case ArgvText():
                literal = all(isinstance(piece, str) for piece in part.pieces)
                yield "".join(map(str, part.pieces)) if literal else None
            case ArgvFlag():
                yield part.text
            case ConditionalParts():
                yield from _words((*part.then, *part.otherwise))
            case RepeatedParts():
                yield from _words(part.argv)
            case JoinedItems():
                yield None
