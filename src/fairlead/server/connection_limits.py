"""Connection limits of our own server: deadlines for slow clients, and caps on open connections.

A silent or slow client costs one file descriptor for some seconds. When all connections are in use, a new connection
replaces the one whose request we have awaited longest. uvicorn itself only limits idle keep-alive connections.
"""

import contextlib
import math
import os
import time
from collections import Counter
from collections.abc import Container
from enum import Enum
from http import HTTPStatus
from typing import Any

import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from fairlead.errors import FairleadError, HeaderTooLarge, RequestTooSlow, ServerFull
from fairlead.server.client_addresses import address_group
from fairlead.server.problems import problem_response
from fairlead.settings import Settings

with contextlib.suppress(ImportError):  # not on Windows
    import resource

log = structlog.get_logger(__name__)

# File descriptors reserved for the rest of the process, beside its database connections.
RESERVED_DESCRIPTORS = 64
FEWEST_CONNECTIONS = 16
MOST_CONNECTIONS = 65_536
MOST_HEADER_BYTES = 65_536
# The slowest allowed transfer of a body or response: its deadline grows with its length.
BYTES_PER_SECOND = 16_384
# How long a closing connection may take to flush its last bytes.
CLOSE_SECONDS = 5.0


class ConnectionPhase(Enum):
    """What the server waits for on a connection."""

    HEADER = "header"
    BODY = "body"
    IDLE = "idle"
    # the application's response: the client has sent everything
    ANSWER = "answer"
    SOCKET = "socket"


class ConnectionLimits:
    """All connections of a server, capped in total and per address."""

    def __init__(self, settings: Settings, trusted: Container[str]) -> None:
        """`trusted` are proxies: many clients share them, so only the total cap applies."""
        self.settings = settings
        self.most = max_connections(settings)
        self._trusted = trusted
        self._open: dict[LimitedConnection, str | None] = {}
        self._by_address: Counter[str] = Counter()
        # connections that wait for their client, the longest first
        self._waiting_for_client: dict[LimitedConnection, None] = {}

    def enter(self, connection: "LimitedConnection") -> ServerFull | None:
        """Count a new connection; return an error if all are in use and none can be closed."""
        host = connection.client[0] if connection.client else None
        address = None if host is None or host in self._trusted else address_group(host)
        most_here = self.settings.max_connections_per_address
        if address is not None and most_here and self._by_address[address] >= most_here:
            if not self._make_room(address):
                return ServerFull(
                    f"This address has {most_here} open connections, which is its limit "
                    "(FAIRLEAD_MAX_CONNECTIONS_PER_ADDRESS). Close some, or try again later."
                )
        elif len(self._open) >= self.most and not self._make_room(None):
            return ServerFull(
                f"This server has {self.most} open connections, which is its limit (FAIRLEAD_MAX_CONNECTIONS). "
                "Try again later."
            )
        self._open[connection] = address
        if address is not None:
            self._by_address[address] += 1
        return None

    def leave(self, connection: "LimitedConnection") -> None:
        """Forget a closed connection."""
        self._waiting_for_client.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def note(self, connection: "LimitedConnection", *, owes: bool) -> None:
        """Note whether the connection now waits for its client."""
        self._waiting_for_client.pop(connection, None)
        if owes and connection in self._open:
            self._waiting_for_client[connection] = None

    def sweep(self) -> None:
        """Close the connections whose deadline has passed."""
        now = time.monotonic()
        for connection in list(self._open):
            connection.check(now)

    def _make_room(self, address: str | None) -> bool:
        """Close the connection that has waited longest for its client: of an address, or of all."""
        for connection in self._waiting_for_client:
            if address is None or self._open[connection] == address:
                connection.cut()
                return True
        return False


class LimitedConnection(HttpToolsProtocol):
    """A connection with a deadline for each part of a request."""

    def __init__(self, config: "ServerConfig", *given: Any, **named: Any) -> None:
        super().__init__(config, *given, **named)
        self._limits = config.connection_limits
        self._settings = config.connection_limits.settings
        self._phase = ConnectionPhase.HEADER
        self._deadline = math.inf
        self._header_bytes = 0
        self._write_deadline = math.inf
        self._closed_at: float | None = None

    def connection_made(self, transport: Any) -> None:
        """Admit the connection, or answer with the reason for refusing it."""
        super().connection_made(transport)
        if (refusal := self._limits.enter(self)) is not None:
            log.warning("connection_refused", why=refusal.message)
            self._refuse(refusal)
            return
        self._wait_for(ConnectionPhase.HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._limits.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Limit the header's size: the parser buffers all of it."""
        if self.transport.is_closing():
            return
        self._header_bytes += len(data)
        super().data_received(data)
        if self._phase is ConnectionPhase.HEADER and self._header_bytes > MOST_HEADER_BYTES:
            self._refuse(HeaderTooLarge(f"The header is larger than {MOST_HEADER_BYTES} bytes. Send less."))

    def on_message_begin(self) -> None:
        """A request begins; bytes before it, such as empty lines, do not count."""
        super().on_message_begin()
        self._wait_for(ConnectionPhase.HEADER)

    def on_headers_complete(self) -> None:
        """The header is here."""
        self._wait_for(ConnectionPhase.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Extend the deadline for each part of the body, unless the response is complete."""
        if self._find_unanswered() is not None:
            self._deadline += len(body) / BYTES_PER_SECOND
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        super().on_message_complete()
        self._header_bytes = 0
        self._wait_for(ConnectionPhase.IDLE if self._find_unanswered() is None else ConnectionPhase.ANSWER)

    def on_response_complete(self) -> None:
        """The response is written. The rest of an unread body must arrive within the idle timeout."""
        super().on_response_complete()
        if self._phase is ConnectionPhase.ANSWER and self._find_unanswered() is None:
            self._wait_for(ConnectionPhase.IDLE)
        elif self._phase is ConnectionPhase.BODY:
            self._deadline = min(self._deadline, time.monotonic() + self._settings.connection_idle_seconds)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the WebSocket protocol, which has its own pings."""
        self._wait_for(ConnectionPhase.SOCKET)
        super().handle_websocket_upgrade()

    def pause_writing(self) -> None:
        """The client reads its response more slowly than we write."""
        super().pause_writing()
        unsent = self.transport.get_write_buffer_size()
        allowed = self._settings.request_body_seconds + unsent / BYTES_PER_SECOND
        self._write_deadline = time.monotonic() + allowed

    def resume_writing(self) -> None:
        """The client has read most of the response."""
        super().resume_writing()
        self._write_deadline = math.inf

    def check(self, now: float) -> None:
        """Close the connection if a deadline has passed."""
        if self.transport.is_closing():
            self._check_closing(now)
        elif self._write_deadline <= now:
            log.info("connection_cut", why="the client does not read its response")
            self.transport.abort()
        elif self._deadline <= now:
            self._expire(now)

    def cut(self) -> None:
        """Close the connection at once, to make room for another."""
        self._limits.leave(self)
        self.transport.abort()

    def _wait_for(self, phase: ConnectionPhase) -> None:
        settings = self._settings
        seconds = {
            ConnectionPhase.HEADER: settings.request_header_seconds,
            ConnectionPhase.BODY: settings.request_body_seconds,
            ConnectionPhase.IDLE: settings.connection_idle_seconds,
        }.get(phase, math.inf)
        self._phase = phase
        self._deadline = time.monotonic() + seconds
        self._limits.note(self, owes=seconds is not math.inf)

    def _find_unanswered(self) -> RequestResponseCycle | None:
        """The newest request, if its answer is not complete."""
        cycle: RequestResponseCycle | None = self.cycle
        return None if cycle is None or cycle.response_complete else cycle

    def _check_closing(self, now: float) -> None:
        if self._closed_at is None:
            self._closed_at = now
        if self._phase is ConnectionPhase.SOCKET:
            self._limits.leave(self)  # the WebSocket protocol gets connection_lost instead of us
        elif now - self._closed_at > CLOSE_SECONDS:
            self.transport.abort()

    def _expire(self, now: float) -> None:
        if self._phase is ConnectionPhase.BODY and self.flow.read_paused:  # we are slow, not the client
            self._deadline = now + self._settings.request_body_seconds
        elif self._phase is ConnectionPhase.IDLE or not self._header_bytes:
            self.transport.close()
        else:
            what = "header" if self._phase is ConnectionPhase.HEADER else "body"
            setting = f"request_{what}_seconds"
            self._refuse(
                RequestTooSlow(
                    f"The {what} of the request did not arrive within {getattr(self._settings, setting):g} s "
                    f"(FAIRLEAD_{setting.upper()}). Send it faster."
                )
            )

    def _refuse(self, error: FairleadError) -> None:
        """Answer with a problem unless a response has begun, and close."""
        if (cycle := self._find_unanswered()) is not None:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        answer = problem_response(error, {"Connection": "close"})
        status = HTTPStatus(answer.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration with our connection limits."""

    connection_limits: ConnectionLimits

    def __init__(self, app: Any, settings: Settings, **more: Any) -> None:
        super().__init__(
            app,
            http=LimitedConnection,
            timeout_keep_alive=math.ceil(settings.connection_idle_seconds),
            **more,
        )
        self.load()
        # the proxies that FORWARDED_ALLOW_IPS names
        self.connection_limits = ConnectionLimits(settings, getattr(self.loaded_app, "trusted_hosts", ()))


def max_connections(settings: Settings) -> int:
    """The setting's limit, or fewer if the process may open fewer files."""
    wanted = settings.max_connections or MOST_CONNECTIONS
    if os.name != "posix":
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(FEWEST_CONNECTIONS, soft - settings.pool_size - RESERVED_DESCRIPTORS))
