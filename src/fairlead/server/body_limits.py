"""Limits of request bodies: each one's size, and how much memory those of a tenant take together.

Tenants take turns at the memory. A request waits before its body is read, so the client waits, too.
"""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import BodyTooLarge, ServerFull, TooManyRequests
from fairlead.server.problems import problem_response
from fairlead.turns.loop_pauses import LoopPauses
from fairlead.turns.owner import Owner, owner_of_task
from fairlead.turns.shared import OwnerUse, SharedTurns

# The first bytes of a body, and values that take little memory, need no turn.
SMALL_BYTES = 65_536
SMALL_COST = 262_144
# A body takes its turns in steps if its size is unknown, or its client has not signed in.
STEP_BYTES = 262_144
# What the bodies of clients that have not signed in may take together, beyond their first bytes: those of webhooks.
PUBLIC_BYTES = 16_777_216
# How many of the largest bodies a process holds at once.
LARGEST_BODIES = 4
# What the values of all bodies that are parsed may take. Those of one body may take half of it.
PARSED_BYTES = 134_217_728
# What a value of a JSON list or object takes in memory, about.
VALUE_BYTES = 150
# How much text is searched for values at once.
PIECE_BYTES = 65_536
# Scope key: the BodyMemory of the request.
BODY_MEMORY = "fairlead.body_memory"


class BodyTurns:
    """The turns of tenants at the memory of bodies, of one process."""

    def __init__(self, most_bytes: int, patience_seconds: float) -> None:
        self.raw = SharedTurns(LARGEST_BODIES * most_bytes, patience_seconds, _refuse)
        self.public = SharedTurns(PUBLIC_BYTES, patience_seconds, _refuse)
        self.parsed = SharedTurns(PARSED_BYTES, patience_seconds, _refuse)

    @property
    def waits(self) -> int:
        """How often bodies waited for their turn."""
        return sum(turns.waits for turns in self._all)

    @property
    def waited_seconds(self) -> float:
        """How long they waited, together."""
        return sum(turns.waited_seconds for turns in self._all)

    @property
    def refusals(self) -> int:
        """How many were refused."""
        return sum(turns.refusals for turns in self._all)

    @property
    def _all(self) -> tuple[SharedTurns, ...]:
        return self.raw, self.public, self.parsed


def _refuse(use: OwnerUse) -> TooManyRequests | ServerFull:
    if not use.held:
        return ServerFull(
            "The bodies of other requests take all memory that this server process has for them. Try again in 1 s."
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

    async def take_bytes(self, number: int) -> int:
        """Wait until so many more bytes may be read. Returns how many: a client that has not signed in gets fewer."""
        owner = owner_of_task.get()
        if owner is not None and owner.is_address:  # whatever it declares, and never sends
            number = min(number, STEP_BYTES)
            await self._take(self._turns.public, number)
        else:
            await self._take(self._turns.raw, number)
        return number

    async def take_values(self, text: bytes) -> None:
        """Wait until a JSON text may be parsed; BodyTooLarge if it has more values than any request may."""
        most = PARSED_BYTES // 2
        values = text.count(b",") + text.count(b"{") + text.count(b"[")
        if len(text) + VALUE_BYTES * values > most:  # perhaps in texts only
            values = await count_values(text)
        cost = len(text) + VALUE_BYTES * values
        if cost > most:
            raise BodyTooLarge(
                f"The body has {values} values, which take about {cost >> 20} MB of memory; "
                f"at most {most >> 20} MB are accepted. Send fewer at once."
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


async def count_values(text: bytes) -> int:
    """About how many values the lists and objects of a JSON text have. Commas and brackets in its strings do not count."""
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    values, is_string, pauses = 0, False, LoopPauses()
    for at in range(0, len(text), PIECE_BYTES):
        await pauses.pause_if_due()
        parts = text[at : at + PIECE_BYTES].split(b'"')
        between = b" ".join(parts[is_string::2])
        values += between.count(b",") + between.count(b"{") + between.count(b"[")
        if len(parts) % 2 == 0:  # a string begins in this piece and ends in another
            is_string = not is_string
    return values


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
        # how many bytes may be read without another turn
        self._admitted = most + 1 if 0 < declared <= SMALL_BYTES else SMALL_BYTES
        self._step = declared or STEP_BYTES
        self._read = 0
        self._is_complete = False
        self.is_refused = False

    async def receive(self) -> Message:
        while self._read >= self._admitted and not self._is_complete:
            self._admitted += await self._memory.take_bytes(self._step)
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
