"""Pipes from a command: read as it writes, and never waited for once it is over."""

import asyncio
import contextlib
import os
from collections.abc import Callable

READ_BYTES = 65_536
# What a command that is over may still have in a pipe.
MOST_LEFT = 1_048_576
LONGEST_LINE = 65_536


class Pipe:
    """A pipe whose other end is a command's. What it writes goes to `feed`, on the loop."""

    def __init__(self, feed: Callable[[bytes], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._feed = feed
        self._ours, self._theirs = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._ours, False)
        self._open = True
        self._loop.add_reader(self._ours, self._readable)

    def give(self) -> int:
        """The command's end, for whoever takes it to close: so that the end of the pipe is noticed."""
        theirs, self._theirs = self._theirs, -1
        return theirs

    def _readable(self) -> None:
        if not self._read():
            self.close()

    def _read(self) -> bool:
        """Whether there was something."""
        try:
            data = os.read(self._ours, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._feed(data)
        return bool(data)

    def finish(self) -> None:
        """Take what is in it, and wait for no more: whoever may still hold the other end."""
        left = MOST_LEFT
        with contextlib.suppress(BlockingIOError):
            while self._open and left > 0 and (data := os.read(self._ours, READ_BYTES)):
                self._feed(data)
                left -= len(data)
        self.close()

    def close(self) -> None:
        """Have no more to do with it."""
        if self._theirs != -1:
            os.close(self.give())
        if self._open:
            self._open = False
            self._loop.remove_reader(self._ours)
            os.close(self._ours)


class Lines:
    """Lines out of what is read, of those that come together only the last; one that is too long is not told."""

    def __init__(self, told: Callable[[str], object]) -> None:
        self._told = told
        self._held = b""
        self._long = False

    def feed(self, data: bytes) -> None:
        """Take what was read."""
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
