"""How a handler ends its job in a database transaction, as the handler sees it: `ctx.tx()` and `ctx.succeed`."""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

WITH = "`async def` functions write `async with ctx.tx() as connection:`, functions in threads write `with`."


class TransactionEnds(Protocol):
    """Ends the job of one attempt in transactions of its handler."""

    async def succeed(self, output: Any, tx: Any) -> None:
        """Write the success through the handler's connection."""

    def succeed_in_thread(self, output: Any, tx: Any) -> None:
        """The same in a thread, with a synchronous connection."""

    def lend(self) -> AbstractAsyncContextManager[Any]:
        """A connection in a transaction, which ends with the block."""

    def lend_in_thread(self) -> AbstractContextManager[Any]:
        """The same in a thread, with a synchronous connection."""

    def handle_commit(self) -> None:
        """The transaction of a lent connection has committed."""

    def handle_rollback(self, tx: Any) -> None:
        """The transaction of a lent connection was rolled back, unless its connection is lost."""

    async def confirm(self, tx: Any) -> None:
        """Write the success that was written last, or one without output, unless this transaction has it already."""

    def confirm_in_thread(self, tx: Any) -> None:
        """The same in a thread."""


class HandlerTransaction:
    """A transaction of the job's database: at the end of the block the job succeeds in it, and it commits.

    An exception rolls it back. `ctx.succeed(output, tx=connection)` within the block gives the job an output.
    """

    def __init__(self, ends: TransactionEnds, *, in_thread: bool) -> None:
        self._ends = ends
        self._in_thread = in_thread
        self._lent: Any = None
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        if self._in_thread:
            raise TypeError(WITH)
        self._lent = self._ends.lend()
        self._connection = await self._lent.__aenter__()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                await self._ends.confirm(self._connection)
            except BaseException as refusal:
                await self._lent.__aexit__(type(refusal), refusal, refusal.__traceback__)
                self._ends.handle_rollback(self._connection)
                raise
            await self._lent.__aexit__(None, None, None)
            self._ends.handle_commit()
            return
        await self._lent.__aexit__(kind, error, trace)
        self._ends.handle_rollback(self._connection)

    def __enter__(self) -> Any:
        if not self._in_thread:
            raise TypeError(WITH)
        self._lent = self._ends.lend_in_thread()
        self._connection = self._lent.__enter__()
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            try:
                self._ends.confirm_in_thread(self._connection)
            except BaseException as refusal:
                self._lent.__exit__(type(refusal), refusal, refusal.__traceback__)
                self._ends.handle_rollback(self._connection)
                raise
            self._lent.__exit__(None, None, None)
            self._ends.handle_commit()
            return
        self._lent.__exit__(kind, error, trace)
        self._ends.handle_rollback(self._connection)
