"""Searches the lines of a log, as the log viewer shows them: joined across chunks, without escape sequences."""

from collections.abc import Collection, Iterable

import msgspec

from fairlead.model.ansi import AnsiStripper
from fairlead.model.log import Chunk


class ChunkMatches(msgspec.Struct, frozen=True):
    """How often the lines that begin in a chunk match."""

    attempt_no: int
    seq: int
    count: int


class LineSearch:
    """Counts matches chunk by chunk. A line belongs to the chunk in which it begins."""

    def __init__(self, wanted: str, streams: Collection[str]) -> None:
        """`wanted` matches in any case; only lines of these streams count."""
        self._wanted = wanted.lower()
        self._streams = streams
        self._plain: dict[tuple[int, str], AnsiStripper] = {}
        # the chunk in which the last line began, and its text, if that line has no newline yet
        self._begun: Chunk | None = None
        self._line = ""
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Search the next chunks of the log."""
        for chunk in chunks:
            plain = self._plain.setdefault((chunk.attempt_no, chunk.stream), AnsiStripper())
            self._add(chunk, plain.text(chunk.text))

    def matches(self) -> list[ChunkMatches]:
        """The chunks with matches so far, in order."""
        self._close()
        return [ChunkMatches(attempt_no, seq, count) for (attempt_no, seq), count in self._counts.items()]

    def _add(self, chunk: Chunk, text: str) -> None:
        if self._begun is not None and not _continues(self._begun, chunk):
            self._close()
        *whole, rest = text.split("\n")
        for line in whole:
            self._begun = self._begun or chunk
            self._line += line
            self._close()
        if rest:
            self._begun = self._begun or chunk
            self._line += rest

    def _close(self) -> None:
        begun = self._begun
        count = self._line.lower().count(self._wanted) if self._wanted else 0
        if begun is not None and count and begun.stream in self._streams:
            place = (begun.attempt_no, begun.seq)
            self._counts[place] = self._counts.get(place, 0) + count
        self._begun, self._line = None, ""


def _continues(begun: Chunk, chunk: Chunk) -> bool:
    return begun.attempt_no == chunk.attempt_no and begun.stream == chunk.stream
