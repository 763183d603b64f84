"""Escape sequences of terminals: kept in what is stored, left out where somebody wants plain text."""

import re

# Colours and cursors; strings for the terminal, up to their end or that of the line; every other sequence.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x1b\x80-\x9f]"
)
# The beginning of one that may go on in the next chunk.
_BEGUN = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*\x1b?|\x1b[ -/]*)\Z"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# C0 but for tab and newline, DEL, C1; marks that turn the direction of writing, line and paragraph separators.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# The same where JSON does not escape them by itself.
_UNESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MOST_HELD = 1_024


class Plain:
    """Takes escape sequences out of a stream that comes in chunks, also those that are cut between two."""

    def __init__(self) -> None:
        self._held = ""

    def text(self, chunk: str) -> str:
        """What is plain of it; a sequence that is not over yet waits for the next chunk."""
        text = self._held + chunk
        cut = self._begins(text)
        self._held = text[cut:]
        return self._clean(text[:cut])

    def _begins(self, text: str) -> int:
        """Where a sequence begins that is not over yet."""
        # only the end is looked at: of what is longer, nobody waits for the rest
        begun = _BEGUN.search(text, max(0, len(text) - MOST_HELD))
        return begun.start() if begun else len(text)

    def _clean(self, text: str) -> str:
        return _SEQUENCE.sub("", text)


class Coloured(Plain):
    """Leaves of a stream what a terminal may safely be shown: text, and colours."""

    def _clean(self, text: str) -> str:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _SEQUENCE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)
        # what is left of ESC are colours
        return "".join(part if _COLOUR.fullmatch(part) else without_controls(part) for part in _parts(text))

    def _begins(self, text: str) -> int:
        # a return may be the first half of a line's end
        return len(text) - 1 if text.endswith("\r") else super()._begins(text)


def without_controls(text: str) -> str:
    """A text without control characters, which a terminal would obey, and without marks that reorder what is read."""
    return _UNSAFE.sub("", text)


def escaped_json(text: str) -> str:
    """The same JSON, with those characters escaped that a terminal would obey."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _parts(text: str) -> list[str]:
    """Colours, and the texts between them."""
    return re.split(f"({_COLOUR.pattern})", text)


def plain(text: str) -> str:
    """A whole text without escape sequences."""
    return _SEQUENCE.sub("", text)
