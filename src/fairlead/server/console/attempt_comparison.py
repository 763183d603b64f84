"""Two attempts of a job side by side: which facts and which lines differ. Pure."""

from collections.abc import Iterator
from difflib import SequenceMatcher

import msgspec

from fairlead.model import ansi
from fairlead.model.job import Attempt

# The lines of each text that are compared, from its end.
MOST_LINES = 200


class Pair(msgspec.Struct, frozen=True):
    """A line of each side; None where the other side has more lines."""

    left: str | None
    right: str | None

    @property
    def differs(self) -> bool:
        """Whether the two lines are not the same."""
        return self.left != self.right


class AttemptComparison(msgspec.Struct, frozen=True):
    left: Attempt
    right: Attempt
    error: list[Pair]
    output: list[Pair]

    def differs(self, field: str) -> bool:
        """Whether the attempts differ in this field."""
        return bool(getattr(self.left, field) != getattr(self.right, field))


def compare_attempts(left: Attempt, right: Attempt) -> AttemptComparison:
    """Compare the errors and the last lines of output of two attempts."""
    return AttemptComparison(
        left,
        right,
        list(pair_lines(_lines(left.error_text), _lines(right.error_text))),
        list(pair_lines(_output(left), _output(right))),
    )


def pair_lines(left: list[str], right: list[str]) -> Iterator[Pair]:
    """Pair equal lines, and what stands between them."""
    for _, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for at in range(max(b - a, d - c)):
            yield Pair(left[a + at] if a + at < b else None, right[c + at] if c + at < d else None)


def _output(one: Attempt) -> list[str]:
    return _lines(one.stdout_tail) + _lines(one.stderr_tail)


def _lines(text: str | None) -> list[str]:
    return ansi.strip_ansi(text or "").splitlines()[-MOST_LINES:]
