"""A command's output: read from pipes while it writes, freed of directives, decoded, masked, and stored within limits."""

import asyncio
import codecs
import contextlib
import os
import re
from collections.abc import Callable, Mapping

from fairlead.model.ansi import show_text
from fairlead.model.secrets.redact import Mask

READ_BYTES = 65_536
# The most bytes that are read from a pipe after its command ended.
MOST_LEFT = 1_048_576
LONGEST_LINE = 65_536
# The prefix of every directive, such as `fairlead:result`; a longer directive than this is cut.
PREFIX = "fairlead:"
LONGEST_DIRECTIVE = 1_114_112
# An incomplete line is passed on when it is longer than this; a pattern may match this many characters ahead.
MOST_HELD = 16_384
AHEAD = 1_024
LONGEST_CHUNK = 32_768

_PREFIX = PREFIX.encode()
# UTF-8 continuation bytes
_INNER = bytes(range(0x80, 0xC0))

OnText = Callable[[str], object]
# Callbacks by a directive's prefix. Of directives that arrive together, only the last with each prefix is passed on.
Directives = Mapping[str, OnText]


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

    def __init__(self, told: OnText) -> None:
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


class DirectiveFilter:
    """Removes directives from output. Works on bytes, since most output is not decoded here."""

    def __init__(self, takes: Directives) -> None:
        self._takes = {prefix.encode(): hear for prefix, hear in takes.items()}
        names = b"|".join(re.escape(prefix) for prefix in self._takes)
        self._ours = re.compile(rb"^(?:%s).*\n" % names, re.MULTILINE)
        self._fresh = True  # at the beginning of a line
        self._held = b""  # the beginning of a line that may become a directive
        self._line: bytearray | None = None  # an incomplete directive
        self._prefix = b""
        self._heard: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> bytes:
        """Process output; the part without directives."""
        if self._line is not None:
            data = self._continue_directive(self._line, data)
        if data:
            data, self._held = self._held + data, b""
            data = self._filter(data)
        self._call_back()
        return data

    def end(self) -> bytes:
        """Process the end of the output; the held part that is not a directive."""
        if self._line is not None:
            self._heard[self._prefix] = bytes(self._line)
            self._line = None
        self._call_back()
        held, self._held = self._held, b""
        return held

    def _continue_directive(self, line: bytearray, data: bytes) -> bytes:
        """Continue an incomplete directive; the data after its end."""
        more, end, rest = data.partition(b"\n")
        line += more[: LONGEST_DIRECTIVE - len(line)]
        if end:
            self._heard[self._prefix] = bytes(line)
            self._line, self._fresh = None, True
        return rest

    def _filter(self, data: bytes) -> bytes:
        """The data without directives. Searches all whole lines together: there may be very many directives."""
        begin = 0 if self._fresh else data.find(b"\n") + 1
        if not begin and not self._fresh:
            return data
        end = data.rfind(b"\n") + 1 or begin
        lines, last = data[begin:end], data[end:]
        shown = self._remove_directives(lines) if _PREFIX in lines else lines
        kept = self._filter_incomplete(last)
        return data if shown is lines and kept is last else data[:begin] + shown + kept

    def _remove_directives(self, lines: bytes) -> bytes:
        for prefix in self._takes:
            at = lines.rfind(b"\n" + prefix) + 1
            if at or lines.startswith(prefix):
                self._heard[prefix] = lines[at + len(prefix) : lines.index(b"\n", at)]
        return self._ours.sub(b"", lines)

    def _filter_incomplete(self, last: bytes) -> bytes:
        """The part of an incomplete line that is not a directive."""
        self._prefix = next((one for one in self._takes if last.startswith(one)), b"")
        if self._prefix:
            self._line = bytearray(last[len(self._prefix) :])
            return b""
        self._fresh = any(one.startswith(last) for one in self._takes)
        self._held = last if self._fresh else b""
        return b"" if self._fresh else last

    def _call_back(self) -> None:
        heard, self._heard = self._heard, {}
        for prefix, line in heard.items():
            self._takes[prefix](line.decode(errors="replace"))


class CommandOutput:
    """One stream of a command. Up to the cap all output is passed on; beyond it only the end is stored."""

    def __init__(
        self,
        *,
        tail_bytes: int,
        cap_bytes: int,
        told: OnText,
        mask: Mask | None = None,
        takes: Directives | None = None,
    ) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._taking = DirectiveFilter(takes) if takes else None
        self._left = max(cap_bytes, tail_bytes)
        self._told = told
        self._mask = mask
        self._held = ""
        self._ends = OutputEnds(tail_bytes // 2)
        self._rest: OutputRest | None = None

    def feed(self, data: bytes) -> None:
        """Process output that was read."""
        if self._taking is not None:
            data = self._taking.feed(data)
        if data:
            self._process(data)

    def end(self) -> str:
        """Process the rest; the stored text: the beginning, the end, and a mark between them."""
        if self._taking is not None and (data := self._taking.end()):
            self._process(data)
        if self._rest is None:
            self._held += self._decoder.decode(b"", final=True)
            self._pass_on(len(self._held))
        else:
            text, lost = self._rest.text(self._mask)
            if lost:
                self._ends.skip(lost)
            self._ends.add(_escape_nul(text).encode())
        return self._ends.text()

    def _process(self, data: bytes) -> None:
        if self._rest is None and len(data) > self._left:
            self._decode(data[: self._left])
            self._switch_to_rest()
            data = data[self._left :]
        if self._rest is None:
            self._decode(data)
            self._left -= len(data)
        else:
            self._rest.add(data)

    # Up to the cap

    def _decode(self, data: bytes) -> None:
        self._held += self._decoder.decode(data)
        self._pass_on(self._count_ready())
        mask = self._mask
        # a secret is looked for in the shown text, which is only a little of what is held: the rest is escapes
        if mask is not None and len(self._held) > MOST_HELD + mask.reach and (shown := show_text(self._held)):
            self._held = shown.text + shown.unfinished

    def _count_ready(self) -> int:
        """How much held text may be passed on: whole lines, or the part of a long line that no secret overlaps."""
        at = self._held.rfind("\n") + 1
        if self._mask is None:
            return at or (len(self._held) if len(self._held) > MOST_HELD else 0)
        if not at and len(self._held) > MOST_HELD:
            at = self._mask.move_before_match(self._held, len(self._held) - AHEAD)
        if not at:
            return 0
        return self._mask.find_safe_cut(self._held, at)

    def _pass_on(self, count: int) -> None:
        text, self._held = self._held[:count], self._held[count:]
        text = _escape_nul(text if self._mask is None else self._mask.text(text))
        self._ends.add(text.encode())
        for begin in range(0, len(text), LONGEST_CHUNK):
            self._told(text[begin : begin + LONGEST_CHUNK])

    # Beyond the cap

    def _switch_to_rest(self) -> None:
        """Switch to storing only the end. Held text that may begin a secret goes there too, so that the secret is masked whole."""
        mask = self._mask
        self._pass_on(len(self._held) if mask is None else mask.find_safe_cut(self._held, len(self._held)))
        self._rest = OutputRest(3 + self._ends.half + (0 if mask is None else 4 * mask.reach))
        self._rest.add(self._held.encode() + self._decoder.getstate()[0])
        self._held = ""


class OutputEnds:
    """The first and the last bytes of the output, and their total count."""

    def __init__(self, half: int) -> None:
        self.half = half
        self._room = half
        self._head, self._tail = bytearray(), bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._total += len(data)
        if self._room:
            self._head += data[: self._room]
            taken = min(self._room, len(data))
            self._room -= taken
            data = data[taken:]
        self._tail += data
        if len(self._tail) > 2 * self.half:
            del self._tail[: len(self._tail) - self.half]

    def skip(self, count: int) -> None:
        """Note `count` missing bytes: the bytes before them are not the end of the output."""
        self._total += count
        self._room = 0
        self._tail.clear()

    def text(self) -> str:
        """Both ends, with a mark between them if bytes were dropped."""
        kept = len(self._head) + len(self._tail)
        if kept == self._total and kept <= 2 * self.half:
            return (self._head + self._tail).decode()
        head = self._head.decode(errors="ignore")
        tail = self._tail[len(self._tail) - min(self.half, len(self._tail)) :].decode(errors="ignore")
        dropped = self._total - len(head.encode()) - len(tail.encode())
        return f"{head}\n… {dropped} bytes dropped …\n{tail}"


class OutputRest:
    """The end of the output beyond the cap."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = bytearray()
        self._lost = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self._data += data
        if len(self._data) > 2 * self._most:
            self._lost += len(self._data) - self._most
            del self._data[: len(self._data) - self._most]

    def text(self, mask: Mask | None) -> tuple[str, int]:
        """The stored text without secrets or parts of them, and how many bytes before it are missing."""
        data = self._data
        if self._lost:
            data = data[:3].lstrip(_INNER) + data[3:]
            self._lost += len(self._data) - len(data)
        text = data.decode(errors="replace")
        if mask is None:
            return text, self._lost
        at = mask.find_safe_start(text) if self._lost else 0
        return mask.text(text[at:]), self._lost + len(text[:at].encode())


def _escape_nul(text: str) -> str:
    return text.replace("\x00", "\\x00")
