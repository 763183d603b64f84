"""Limits of request bodies: each one's size, and how much memory those of a tenant take together.

Tenants take turns at the memory. A request waits before its body is read, so the client waits, too.
"""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import BodyTooLarge, ServerFull, TooManyRequests
from fairlead.server.problems import problem_response
from fairlead.turns.owner import Owner, owner_of_task
from fairlead.turns.shared import OwnerUse, SharedTurns

# Bodies that take less memory than this, before or after they are parsed, need no turn.
SMALL_BYTES = 65_536
SMALL_COST = 262_144
# How many of the largest bodies a process holds at once.
LARGEST_BODIES = 4
# What the values of all bodies that are parsed may take. One body may take half of it.
PARSED_BYTES = 134_217_728
# What a value of a JSON list or object takes in memory, about.
VALUE_BYTES = 100
# Scope key: the BodyMemory of the request.
BODY_MEMORY = "fairlead.body_memory"


class BodyTurns:
    """The turns of tenants at the memory of bodies, of one process."""

    def __init__(self, most_bytes: int, patience_seconds: float) -> None:
        self.raw = SharedTurns(LARGEST_BODIES * most_bytes, patience_seconds, _refuse)
        self.parsed = SharedTurns(PARSED_BYTES, patience_seconds, _refuse)


def _refuse(use: OwnerUse) -> TooManyRequests | ServerFull:
    if not use.held:
        return ServerFull(
            "The bodies of other requests take all memory that this server has for them. Try again."
        )
    refusal = TooManyRequests(
        f"The bodies of your requests take {use.held >> 20} MB in this server process, and {use.waiting} more are waiting. "
        "Send fewer large bodies at once, and try again in 1 s."
    )
    refusal.retry_after = 1
    return refusal


class BodyMemory:
    """What the body of one request takes."""

    def __init__(self, turns: BodyTurns) -> None:
        self._turns = turns
        self._taken: list[tuple[SharedTurns, Owner, int]] = []

    async def take_bytes(self, number: int) -> None:
        """Wait until a body of so many bytes may be read."""
        if number > SMALL_BYTES:
            await self._take(self._turns.raw, number)

    async def take_values(self, text: bytes) -> None:
        """Wait until a JSON text may be parsed; BodyTooLarge if it has more values than any request may."""
        values = text.count(b",") + text.count(b"{") + text.count(b"[")
        cost = len(text) + VALUE_BYTES * values
        if cost > PARSED_BYTES // 2:
            raise BodyTooLarge(
                f"The body has {values} values, which would take about {cost >> 20} MB; at most {PARSED_BYTES >> 21} MB are "
                "accepted. Send fewer at once."
            )
        if cost > SMALL_COST:
            await self._take(self._turns.parsed, cost)

    async def _take(self, turns: SharedTurns, amount: int) -> None:
        if (owner := owner_of_task.get()) is not None:
            await turns.take(owner, amount)
            self._taken.append((turns, owner, amount))

    def give_back(self) -> None:
        """The request is over."""
        for turns, owner, amount in self._taken:
            turns.give_back(owner, amount)
        self._taken.clear()


class BodyLimits:
    """Middleware that refuses bodies larger than `most` bytes, declared or streamed, and lets large ones take turns."""

    def __init__(self, app: ASGIApp, most: int, turns: BodyTurns) -> None:
        self._app = app
        self._most = most
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._most:
            await self._refuse(scope, receive, send)
            return
        memory = scope[BODY_MEMORY] = BodyMemory(self._turns)
        body = _BoundedBody(memory, receive, send, declared=int(declared), most=self._most)
        try:
            with suppress(_TooLarge):
                await self._app(scope, body.receive, body.send)
        finally:
            memory.give_back()
        if body.is_refused:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = BodyTooLarge(
            f"The body is larger than {self._most} bytes. Send less, or raise FAIRLEAD_MAX_BODY_BYTES."
        )
        await problem_response(error, {"Connection": "close"})(scope, receive, send)


class _BoundedBody:
    """The body of a request while it is read."""

    def __init__(self, memory: BodyMemory, receive: Receive, send: Send, *, declared: int, most: int) -> None:
        self._memory = memory
        self._receive = receive
        self._send = send
        self._most = most
        # how much of it there is room for
        self._room = 0
        self._next_room = declared or SMALL_BYTES
        self._read = 0
        self._is_complete = False
        self.is_refused = False

    async def receive(self) -> Message:
        if self._read >= self._room and not self._is_complete:
            await self._memory.take_bytes(self._next_room)
            # without a declared size: after the first part, as much as there may be
            self._room, self._next_room = self._room + self._next_room, self._most
        message = await self._receive()
        if message["type"] == "http.request":
            self._is_complete = not message.get("more_body", False)
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                self.is_refused = True
                raise _TooLarge
        return message

    async def send(self, message: Message) -> None:
        if not self.is_refused:
            await self._send(message)


class _TooLarge(BaseException):
    """Raised while the body is read. A BaseException, so that the application does not catch it."""
