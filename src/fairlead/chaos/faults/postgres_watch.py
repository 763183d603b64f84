"""Reads the PostgreSQL protocol of one connection, to find the replies to commits."""

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

SSL_REQUEST = 80877103
GSS_REQUEST = 80877104
CANCEL_REQUEST = 80877102
IDLE = b"I"

_COMMIT = re.compile(r"\s*(?:commit|end)\b", re.IGNORECASE)
_BEGIN = re.compile(r"\s*(?:begin|start)\b", re.IGNORECASE)
# A statement that changes rows, or calls a function of a schema, which may do so.
_WRITES = re.compile(r"\b(?:insert|update|delete|merge|copy)\b|\w\.\w+\s*\(", re.IGNORECASE)


class Passed(NamedTuple):
    """What to do with bytes: forward the first, answer with the second, and reset the connection or not."""

    forward: bytes
    answer: bytes = b""
    reset: bool = False


class ConnectionWatch(Protocol):
    """Sees all bytes of one connection, and decides what comes through."""

    def pass_client_bytes(self, data: bytes) -> Passed:
        """What the client has sent."""

    def pass_server_bytes(self, data: bytes) -> Passed:
        """What the server has sent."""


class SwallowRule(Protocol):
    """Decides whether a reply is swallowed."""

    def wants_reply(self) -> bool:
        """Whether to swallow the reply that comes next."""

    def count_swallowed(self) -> None:
        """The server has done what was asked, and the client will not know."""


class SyncPoint:
    """The statements that the server answers together, up to its next ReadyForQuery."""

    def __init__(self, *, extended: bool = True) -> None:
        self.extended = extended
        self.statements: list[str] = []
        self.copies_in = False

    def commits(self, status_before: bytes) -> bool:
        """Whether these statements commit something, if no error occurs."""
        if any(_COMMIT.match(one) for one in self.statements):
            return True
        opens = any(_BEGIN.match(one) for one in self.statements)
        return status_before == IDLE and not opens and any(map(_WRITES.search, self.statements))


class PostgresWatch:
    """Follows one connection: which statements the client has sent, and which of them the server has answered."""

    def __init__(self, rule: SwallowRule) -> None:
        self._rule = rule
        self._sent = bytearray()
        self._received = bytearray()
        # before the first message with a type, and after a cancel request, which has none
        self._is_starting = True
        self._is_cancel = False
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._building = SyncPoint()
        self._points: deque[SyncPoint] = deque()
        # of the server's last ReadyForQuery: idle, in a transaction, or in a failed one
        self._status = b""
        self._is_decided = False
        self._is_swallowing = False
        self._has_failed = False

    def pass_client_bytes(self, data: bytes) -> Passed:
        if self._is_cancel:
            return Passed(data)
        self._sent += data
        answer = b""
        forward = b""
        while self._is_starting and len(self._sent) >= 8:
            length, code = int.from_bytes(self._sent[:4]), int.from_bytes(self._sent[4:8])
            if len(self._sent) < length:
                return Passed(forward, answer)
            message = bytes(self._sent[:length])
            del self._sent[:length]
            if code in (SSL_REQUEST, GSS_REQUEST):
                answer += b"N"
                continue
            self._is_starting = False
            forward += message
            if code == CANCEL_REQUEST:
                self._is_cancel = True
                return Passed(forward, answer)
            self._points.append(SyncPoint())  # the server says that it is ready after authentication
        if not self._is_starting:
            for message in _take_messages(self._sent):
                self._note_request(message)
                forward += message
        return Passed(forward, answer)

    def _note_request(self, message: bytes) -> None:
        match message[:1]:
            case b"Q":
                point = SyncPoint(extended=False)
                point.statements.append(_decode(message[5:-1]))
                self._points.append(point)
            case b"P":
                name, text, _ = message[5:].split(b"\0", 2)
                self._statements[name] = _decode(text)
            case b"B":
                portal, name, _ = message[5:].split(b"\0", 2)
                self._portals[portal] = self._statements.get(name, "")
            case b"E":
                portal = message[5:].split(b"\0", 1)[0]
                self._building.statements.append(self._portals.get(portal, ""))
            case b"S":
                self._points.append(self._building)
                self._building = SyncPoint()
            case b"F":
                self._points.append(SyncPoint(extended=False))

    def pass_server_bytes(self, data: bytes) -> Passed:
        if self._is_cancel:
            return Passed(data)
        self._received += data
        forward = bytearray()
        for message in _take_messages(self._received):
            kind = message[:1]
            if kind == b"C" and not self._is_decided:
                self._decide()
            if not self._is_swallowing:
                forward += message
            match kind:
                case b"E":
                    self._has_failed = True
                case b"G" if self._points:
                    self._points[0].copies_in = True
                case b"Z":
                    if self._is_swallowing:
                        if not self._has_failed:
                            self._rule.count_swallowed()
                        return Passed(bytes(forward), reset=True)
                    self._end_point(message[5:6])
        return Passed(bytes(forward))

    def _decide(self) -> None:
        """Decide at the first completed statement: a COPY needs the server's reply before it."""
        self._is_decided = True
        point = self._points[0] if self._points else None
        self._is_swallowing = point is not None and point.commits(self._status) and self._rule.wants_reply()

    def _end_point(self, status: bytes) -> None:
        if self._points:
            point = self._points.popleft()
            # the server ignored the Sync of a COPY by the extended protocol; the one after the rows counts
            if point.copies_in and point.extended and self._points:
                self._points.popleft()
        self._status = status
        self._is_decided = self._has_failed = False


def _take_messages(buffer: bytearray) -> Iterator[bytes]:
    """Remove and return the complete messages of a buffer, each with its type and length."""
    start = 0
    while len(buffer) - start >= 5:
        end = start + 1 + int.from_bytes(buffer[start + 1 : start + 5])
        if end > len(buffer):
            break
        yield bytes(buffer[start:end])
        start = end
    del buffer[:start]


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")
