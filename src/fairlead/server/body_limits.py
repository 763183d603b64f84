"""Limits of request bodies: each one's size, and how much memory those of a tenant take together.

Tenants take turns at the memory. A request waits before its body is read, so the client waits, too. What a body takes must
arrive: while a tenant that has nothing waits, bodies of others that arrive slowly are refused.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.errors import BodyTooLarge, Refused, RequestTooSlow, ServerFull, TooManyRequests
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
# While other requests wait for its memory, a body must arrive evenly within this time, and may be `PAUSE_SECONDS` late.
ARRIVAL_SECONDS = 5.0
PAUSE_SECONDS = 0.5
# How often the bodies that are read are looked at while others wait.
LOOK_SECONDS = 0.1
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
        # of requests that are not over
        self.arriving: set[_BoundedBody] = set()
        self._looks = False

    async def take(self, turns: SharedTurns, owner: Owner, amount: int) -> None:
        """Wait for memory; if it is another tenant's turn, behind bodies that arrive in time only."""
        if not self._looks:
            # behind this request, which may begin to wait
            asyncio.get_running_loop().call_soon(self._look)
            self._looks = True
        await turns.take(owner, amount)

    def _look(self) -> None:
        """While requests wait for memory, refuse slow bodies that hold it."""
        self._looks = bool(self.raw.waiting or self.public.waiting)
        if self._looks:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        contended = [turns for turns in (self.raw, self.public) if turns.lets_pass]
        for body in [*self.arriving]:
            body.hurry(contended)

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
        values = await _count_separators(text)
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
            await self._turns.take(turns, owner, amount)
            self._taken.append((turns, owner, amount))

    @property
    def has_taken(self) -> bool:
        """Whether the body is more than a small one."""
        return bool(self._taken)

    def count_taken(self, among: Sequence[SharedTurns]) -> int:
        """How many bytes the body takes of these."""
        return sum(amount for turns, _, amount in self._taken if turns in among)

    def give_back(self) -> None:
        """The request is over."""
        for turns, owner, amount in self._taken:
            turns.give_back(owner, amount)
        self._taken.clear()


async def _count_separators(text: bytes) -> int:
    """The commas and opening brackets of a text, also those in its strings."""
    number, pauses = 0, LoopPauses()
    for at in range(0, len(text), PIECE_BYTES):
        await pauses.pause_if_due()
        piece = text[at : at + PIECE_BYTES]
        number += piece.count(b",") + piece.count(b"{") + piece.count(b"[")
    return number


async def count_values(text: bytes) -> int:
    """About how many values the lists and objects of a JSON text have. Commas and brackets in its strings do not count."""
    values, is_string, at, pauses = 0, False, 0, LoopPauses()
    while at < len(text):
        await pauses.pause_if_due()
        piece = text[at : at + PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # its last backslash escapes what follows
            piece = text[at : at + len(piece) + 1]
        at += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
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
            await _refuse_body(_make_too_large(self._most), scope, receive, send)
            return
        memory = scope[BODY_MEMORY] = BodyMemory(self._turns)
        body = _BoundedBody(memory, receive, send, declared=int(declared), most=self._most)
        self._turns.arriving.add(body)
        try:
            with suppress(_Refused):
                await self._app(scope, body.receive, body.send)
        finally:
            self._turns.arriving.discard(body)
            memory.give_back()
        if body.refusal is not None:
            await _refuse_body(body.refusal, scope, receive, send)


def _make_too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {most} bytes. Send less, or raise FAIRLEAD_MAX_BODY_BYTES.")


async def _refuse_body(error: Refused, scope: Scope, receive: Receive, send: Send) -> None:
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
        # when it took memory first, and the wait that goes on, for its client or for another turn
        self._took_at = 0.0
        self._wait: asyncio.Timeout | None = None
        self.refusal: Refused | None = None

    async def receive(self) -> Message:
        is_large = self._memory.has_taken or self._read >= self._admitted
        is_timed = is_large and not self._is_complete
        message = await (self._receive_in_time() if is_timed else self._receive_in_turn())
        if message["type"] == "http.request":
            self._is_complete = not message.get("more_body", False)
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                self._refuse(_make_too_large(self._most))
        return message

    async def send(self, message: Message) -> None:
        if self.refusal is None:
            await self._send(message)

    def hurry(self, contended: Sequence[SharedTurns]) -> None:
        """Refuse the body if others wait for what it takes, and it is slow to arrive.

        One that waits for another turn is slow, too: it could wait for those that wait for it.
        """
        taken = self._memory.count_taken(contended)
        if taken and self._wait is not None and not self._wait.expired():
            now = asyncio.get_running_loop().time()
            arrived = min(self._read / taken, 1.0)
            if now - self._took_at > PAUSE_SECONDS + ARRIVAL_SECONDS * arrived:
                self._wait.reschedule(now)

    async def _receive_in_turn(self) -> Message:
        while self._read >= self._admitted and not self._is_complete:
            is_first = not self._memory.has_taken
            self._admitted += await self._memory.take_bytes(self._step)
            if is_first:
                self._took_at = asyncio.get_running_loop().time()
        return await self._receive()

    async def _receive_in_time(self) -> Message:
        try:
            async with asyncio.timeout(None) as self._wait:
                return await self._receive_in_turn()
        except TimeoutError:
            self._refuse(
                RequestTooSlow(
                    "The body of the request arrives slowly, or waits behind other requests of its tenant, while others wait "
                    f"for the memory that it takes. Send it within {ARRIVAL_SECONDS:g} s, fewer at once, or in smaller parts."
                )
            )
        finally:
            self._wait = None

    def _refuse(self, refusal: Refused) -> NoReturn:
        self.refusal = refusal
        raise _Refused


class _Refused(BaseException):
    """Raised while the body is read. A BaseException, so that the application does not catch it."""
