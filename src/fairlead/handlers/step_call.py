"""One call of a step's function: its options, its timeout, and the type of its result."""

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from fairlead.handlers.context import Fatal
from fairlead.handlers.durable_branches import inside_step
from fairlead.handlers.return_type import find_return_type
from fairlead.model.durable import MAX_NAME, MOST_SECONDS
from fairlead.model.outcome import Backoff


class ResultInvalid(Fatal):
    """A step's result is recorded, and the type that its function declares cannot be made of it; a retry helps after a change of the code."""


class Retry(msgspec.Struct, frozen=True):
    """How often a step is tried, and with what pauses."""

    max_attempts: int = 3
    backoff: Backoff = Backoff(base_seconds=1.0)

    def __post_init__(self) -> None:
        """Raise ValueError for a number of attempts that makes no sense."""
        if not 1 <= self.max_attempts <= 10_000:
            raise ValueError(f"Retry takes 1 to 10000 attempts, not {self.max_attempts!r}.")


ONCE = Retry(1)


class StepOptions(msgspec.Struct, frozen=True):
    """The options of a step."""

    retry: Retry = ONCE
    timeout: float | None = None
    secret: bool = False


DEFAULTS = StepOptions()


async def call_step(function: Callable[..., Any], args: Any, kwargs: Any, limit: float | None) -> Any:
    """Call the step's function: a coroutine on the loop, a plain function in a thread."""
    with inside_step():
        if limit is None:
            return await _run(function, args, kwargs)
        try:
            async with asyncio.timeout(limit) as deadline:
                return await _run(function, args, kwargs)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise TimeoutError(f"The step ran longer than its timeout of {limit:g} s.") from None


async def _run(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(function, *args, **kwargs)
    # a lambda or a partial may return a coroutine
    return await result if inspect.isawaitable(result) else result


def check_name(name: Any) -> None:
    """Raise TypeError for a text that cannot name a step."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise TypeError(f"A step needs a name of 1 to {MAX_NAME} characters, not {name!r:.80}.")


def convert_result(result: Any, function: Any, name: str) -> Any:
    """A recorded result as the type that the function declares, in the first attempt as in every replay.

    What does not fit the type is returned as plain JSON values. ResultInvalid if the type itself fails.
    """
    if result is None:
        return None
    kind = find_return_type(function) if inspect.isfunction(function) else Any
    if kind is Any:
        return result
    try:
        return msgspec.convert(result, kind, str_keys=True)
    except (msgspec.ValidationError, TypeError, ValueError):
        return result
    except Exception as error:
        raise ResultInvalid(
            f"Step {name!r} has succeeded, and its result is recorded, but {getattr(kind, '__name__', kind)} cannot be made "
            f"of it: {type(error).__name__}: {error}. The step does not run again: correct the type, and retry the job."
        ) from error


def count_seconds(value: float | timedelta | None, parts: dict[str, float] | None = None) -> float:
    """Seconds from a number, a timedelta, or parts such as `days=3`."""
    if value is None:
        value = timedelta(**(parts or {}))
    elif parts:
        raise TypeError("Give a duration either as one value or in parts such as days=3, not both.")
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"A duration is a number of seconds or a timedelta, not {type(value).__name__}.")
    if not 0 <= seconds <= MOST_SECONDS:
        raise ValueError(f"A duration is 0 to {MOST_SECONDS:.0f} seconds, not {seconds}.")
    return float(seconds)
