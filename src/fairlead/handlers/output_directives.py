"""Directives in a command's output (`fairlead:result …`): removed from the output and passed to their callbacks."""

import re
from collections.abc import Callable, Mapping

# The prefix of every directive.
PREFIX = "fairlead:"
# A longer directive is cut to this.
LONGEST_LINE = 1_114_112

# Callbacks by a directive's prefix. Of directives that arrive together, only the last with each prefix is passed on.
Directives = Mapping[str, Callable[[str], object]]


_PREFIX = PREFIX.encode()


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
        line += more[: LONGEST_LINE - len(line)]
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
