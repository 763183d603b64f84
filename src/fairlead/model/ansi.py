"""Terminal escape sequences: stored as they are, and removed from plain-text output."""

import re
from bisect import bisect_right

# CSI sequences (colours, cursor); OSC and other strings, up to their terminator or the end of the line; all others.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x1b\x80-\x9f]"
)
# A sequence that is incomplete at the end of a chunk.
_UNFINISHED = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*\x1b?|\x1b[ -/]*)\Z"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# C0 except tab and newline, DEL, C1; bidirectional marks; line and paragraph separators.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# The same without C0, which JSON escapes.
_UNESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What a terminal and the console do not show, so that the text on both sides is read as one.
_HIDDEN = re.compile(f"{_SEQUENCE.pattern}|{_UNSAFE.pattern}")
_ASCII_CONTROLS = bytes([*range(9), *range(11, 32), 127])
MOST_HELD = 1_024


class AnsiStripper:
    """Removes escape sequences from a stream of chunks, also those that two chunks share."""

    def __init__(self) -> None:
        self._held = ""

    def text(self, chunk: str) -> str:
        """The plain text of a chunk; an incomplete sequence is kept for the next chunk."""
        text = self._held + chunk
        cut = self._find_unfinished(text)
        self._held = text[cut:]
        return self._clean(text[:cut])

    def _find_unfinished(self, text: str) -> int:
        """The position of an incomplete sequence at the end, or the length of the text."""
        # A longer sequence is not kept: memory stays bounded.
        begun = _UNFINISHED.search(text, max(0, len(text) - MOST_HELD))
        return begun.start() if begun else len(text)

    def _clean(self, text: str) -> str:
        return _SEQUENCE.sub("", text)


class ColourFilter(AnsiStripper):
    """Keeps the parts of a stream that are safe on a terminal: text and colours."""

    def _clean(self, text: str) -> str:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        text = _SEQUENCE.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)
        # the only escape sequences left are colours
        return "".join(
            part if _COLOUR.fullmatch(part) else strip_controls(part) for part in _split_colours(text)
        )

    def _find_unfinished(self, text: str) -> int:
        # the \r may be the first half of a \r\n
        return len(text) - 1 if text.endswith("\r") else super()._find_unfinished(text)


def strip_controls(text: str) -> str:
    """The text without control characters, which a terminal would execute, and without bidirectional marks."""
    return _UNSAFE.sub("", text)


def escape_json(text: str) -> str:
    """The same JSON, with all characters escaped that a terminal would execute."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _split_colours(text: str) -> list[str]:
    """The colour sequences and the texts between them."""
    return re.split(f"({_COLOUR.pattern})", text)


def strip_ansi(text: str) -> str:
    """A whole text without escape sequences."""
    return _SEQUENCE.sub("", text)


class ShownText:
    """A text as it is shown, without escape sequences and control characters, and the place of each character in it."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        begun = _UNFINISHED.search(text, max(0, len(text) - MOST_HELD))
        finished = begun.start() if begun else len(text)
        pieces, self._shown_starts, self._starts = list[str](), [0], [0]
        at = length = 0
        for hidden in _HIDDEN.finditer(text, 0, finished):
            pieces.append(text[at : hidden.start()])
            length += hidden.start() - at
            at = hidden.end()
            self._shown_starts.append(length)
            self._starts.append(at)
        pieces.append(text[at:finished])
        self.text = "".join(pieces)
        self.unfinished = text[finished:]

    def locate(self, at: int) -> int:
        """The place in the original text of a shown character; the end of the text, if there are no more."""
        if at >= len(self.text):
            return self._length
        piece = bisect_right(self._shown_starts, at) - 1
        return self._starts[piece] + at - self._shown_starts[piece]

    def locate_span(self, begin: int, end: int) -> tuple[int, int]:
        """The part of the original text that is shown as this part."""
        return self.locate(begin), self.locate(end - 1) + 1


def show_text(text: str) -> ShownText | None:
    """The text as it is shown; None if that is the text itself, as nearly always."""
    if text.isascii():
        data = text.encode()
        return None if len(data.translate(None, _ASCII_CONTROLS)) == len(data) else ShownText(text)
    return ShownText(text) if _UNSAFE.search(text) else None
