"""A command's output: decoded, masked, passed on in chunks, and stored within limits."""

import codecs
from collections.abc import Callable

from fairlead.handlers.output_directives import DirectiveFilter, Directives
from fairlead.model.secrets.redact import Mask

# An incomplete line is passed on when it is longer than this; a pattern may match this many characters ahead.
MOST_HELD = 16_384
AHEAD = 1_024
LONGEST_CHUNK = 32_768

# UTF-8 continuation bytes
_INNER = bytes(range(0x80, 0xC0))

OnText = Callable[[str], object]


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

    def _count_ready(self) -> int:
        """How much held text may be passed on: whole lines, or the part of a long line that no secret overlaps."""
        at = self._held.rfind("\n") + 1
        if self._mask is None:
            return at or (len(self._held) if len(self._held) > MOST_HELD else 0)
        if not at and len(self._held) > MOST_HELD:
            at = self._mask.move_before_match(self._held, len(self._held) - AHEAD)
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
