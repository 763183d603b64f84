"""Lines of a command's output that are meant for us and not for people: taken out of it, and heard."""

import re
from collections.abc import Callable, Mapping

# What all these lines begin with.
OURS = "fairlead:"
# A line that is longer is heard as far as that.
LONGEST_LINE = 1_114_112

# By what a line begins with: who hears the rest of it. Of lines that come together, only the last of a kind is heard.
Takes = Mapping[str, Callable[[str], object]]


_OURS = OURS.encode()


class Taking:
    """Passes on what is written, but for the lines that it takes. Sees bytes, since most of them are not looked at."""

    def __init__(self, takes: Takes) -> None:
        self._takes = {prefix.encode(): hear for prefix, hear in takes.items()}
        names = b"|".join(re.escape(prefix) for prefix in self._takes)
        self._ours = re.compile(rb"^(?:%s).*\n" % names, re.MULTILINE)
        self._fresh = True  # at the beginning of a line
        self._held = b""  # the beginning of a line, which may become one of ours
        self._line: bytearray | None = None  # one of ours that has not ended
        self._prefix = b""
        self._heard: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> bytes:
        """Take what was written; what of it is to be shown."""
        if self._line is not None:
            data = self._go_on(self._line, data)
        if data:
            data, self._held = self._held + data, b""
            data = self._sifted(data)
        self._hear()
        return data

    def end(self) -> bytes:
        """Nothing more comes: what is left to be shown."""
        if self._line is not None:
            self._heard[self._prefix] = bytes(self._line)
            self._line = None
        self._hear()
        held, self._held = self._held, b""
        return held

    def _go_on(self, line: bytearray, data: bytes) -> bytes:
        """With a line of ours; what is left behind its end."""
        more, end, rest = data.partition(b"\n")
        line += more[: LONGEST_LINE - len(line)]
        if end:
            self._heard[self._prefix] = bytes(line)
            self._line, self._fresh = None, True
        return rest

    def _sifted(self, data: bytes) -> bytes:
        """What is to be shown. Whole lines are looked through at once: there may be very many, and all of them ours."""
        begin = 0 if self._fresh else data.find(b"\n") + 1
        if not begin and not self._fresh:
            return data
        end = data.rfind(b"\n") + 1 or begin
        lines, last = data[begin:end], data[end:]
        shown = self._without_ours(lines) if _OURS in lines else lines
        kept = self._begun(last)
        return data if shown is lines and kept is last else data[:begin] + shown + kept

    def _without_ours(self, lines: bytes) -> bytes:
        for prefix in self._takes:
            at = lines.rfind(b"\n" + prefix) + 1
            if at or lines.startswith(prefix):
                self._heard[prefix] = lines[at + len(prefix) : lines.index(b"\n", at)]
        return self._ours.sub(b"", lines)

    def _begun(self, last: bytes) -> bytes:
        """What is to be shown of a line that has begun, and not ended."""
        self._prefix = next((one for one in self._takes if last.startswith(one)), b"")
        if self._prefix:
            self._line = bytearray(last[len(self._prefix) :])
            return b""
        self._fresh = any(one.startswith(last) for one in self._takes)
        self._held = last if self._fresh else b""
        return b"" if self._fresh else last

    def _hear(self) -> None:
        heard, self._heard = self._heard, {}
        for prefix, line in heard.items():
            self._takes[prefix](line.decode(errors="replace"))
