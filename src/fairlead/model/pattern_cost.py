"""The cost of a regular expression: about the number of states of its automaton."""

import re

# A class with non-ASCII characters takes several states in UTF-8.
CLASS_STATES = 2
CEILING = 10**9

_REPEAT = re.compile(r"\{\s*(\d*)\s*(?:(,)\s*(\d*)\s*)?\}")


def count_states(pattern: str) -> int:
    """An upper bound of the states that the engine can be in at once, with each `{n}` expanded.

    The engine does not backtrack, but may visit every state for every character: `1[01]{5000}2` takes half a minute
    for 200 kB. So a match costs at most states × characters.
    """
    # the sizes of the outer groups, of this group, and of its last part, which a repetition multiplies
    outer, size, last = list[int](), 1, 0
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            end = _end_of_class(pattern, at)
            at, last = end, _states_of_class(pattern[at + 1 : end])
        elif char == "(":
            outer.append(size)
            size, last = 1, 0
        elif char == ")":
            last, size = size, outer.pop() if outer else 0
        elif char == "{" and (found := _REPEAT.match(pattern, at)):
            times = int((found[3] or found[1] or "1")[:9])
            size, at = min(CEILING, size + last * max(times - 1, 0)), found.end() - 1
            last = min(CEILING, last * max(times, 1))
            at += 1
            continue
        elif char in "*+?|^$":
            last = last if char != "|" else 0
            at += 1
            continue
        else:
            at += char == "\\"
            last = CLASS_STATES if char in "\\." else 1
        if char != "(":
            size = min(CEILING, size + last)
        at += 1
    return min(CEILING, size + sum(outer))


def _states_of_class(inside: str) -> int:
    return 1 if inside.isascii() and "\\" not in inside and inside[:1] != "^" else CLASS_STATES


def _end_of_class(pattern: str, at: int) -> int:
    """The end of the character class at this position; classes can be nested."""
    depth = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif pattern[at] == "[":
            depth += 1
        elif pattern[at] == "]":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(pattern)
