"""Pipes from a command: read while it writes, and not awaited after its end."""

import asyncio
import contextlib
import os
from collections.abc import Callable

READ_BYTES = 65_536
# The most bytes that are read from a pipe after its command ended.
MOST_LEFT = 1_048_576
LONGEST_LINE = 65_536


class Pipe:
    """A pipe from a command. Its output goes to `feed`, on the event loop."""

    def __init__(self, feed: Callable[[bytes], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._feed = feed
        self._ours, self._theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._ours, False)
        self._open = True
        self._loop.add_reader(self._ours, self._readable)

    def give(self) -> int:
        """The command's end; the caller must close it, or the end of the output is not seen."""
        theirs, self._theirs = self._theirs, -1
        return theirs

    def _readable(self) -> None:
        if not self._read():
            self.close()

    def _read(self) -> bool:
        """Read once; False at the end of the pipe."""
        try:
            data = os.read(self._ours, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._feed(data)
        return bool(data)

    def finish(self) -> None:
        """Read the rest and close, even if another process still holds the other end."""
        left = MOST_LEFT
        with contextlib.suppress(BlockingIOError):
            while self._open and left > 0 and (data := os.read(self._ours, READ_BYTES)):
                self._feed(data)
                left -= len(data)
        self.close()

    def close(self) -> None:
        """Close both ends."""
        if self._theirs != -1:
            os.close(self.give())
        if self._open:
            self._open = False
            self._loop.remove_reader(self._ours)
            os.close(self._ours)


class LatestLine:
    """Passes on lines; of lines that are read together only the last, and none that is too long."""

    def __init__(self, told: Callable[[str], object]) -> None:
        self._told = told
        self._held = b""
        self._long = False

    def feed(self, data: bytes) -> None:
        """Pass on the last complete line of these bytes; earlier lines in them are dropped."""
        ended, newline, begun = data.rpartition(b"\n")
        if newline:
            _, more, last = ended.rpartition(b"\n")
            line = last if more else self._held + last
            if len(line) <= LONGEST_LINE and (more or not self._long):
                self._told(line.decode(errors="replace"))
            self._held, self._long = b"", False
        self._held += begun
        if len(self._held) > LONGEST_LINE:
            self._held, self._long = b"", True
