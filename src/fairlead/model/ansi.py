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
MOST_HELD = 1_024


class Plain:
    """Takes escape sequences out of a stream that comes in chunks, also those that are cut between two."""

    def __init__(self) -> None:
        self._held = ""

    def text(self, chunk: str) -> str:
        """What is plain of it; a sequence that is not over yet waits for the next chunk."""
        text = self._held + chunk
        # only the end is looked at: of what is longer, nobody waits for the rest
        begun = _BEGUN.search(text, max(0, len(text) - MOST_HELD))
        cut = begun.start() if begun else len(text)
        self._held = text[cut:]
        return _SEQUENCE.sub("", text[:cut])


def plain(text: str) -> str:
    """A whole text without escape sequences."""
    return _SEQUENCE.sub("", text)
