from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from fairlead.errors import SignatureInvalid
from fairlead.handlers.registry import Handler
from tests.tables import each_case


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@each_case("function", [generator, async_generator])
def test_a_generator_cannot_be_a_job(function: Callable[..., Any]) -> None:
    with pytest.raises(SignatureInvalid, match=r"generator cannot be a job.*one output"):
        Handler.of("key", function)


class AsyncCallable:
    async def __call__(self, n: int) -> int:
        return n


@each_case("called", [AsyncCallable(), partial(generator), len])
def test_what_is_not_a_function_cannot_be_a_job(called: Callable[..., Any]) -> None:
    with pytest.raises(SignatureInvalid, match="not a function"):
        Handler.of("key", called)


def test_a_method_can_be_a_job() -> None:
    assert Handler.of("key", AsyncCallable().__call__).is_async


def test_a_function_that_a_child_could_not_find_cannot_be_isolated() -> None:
    def local() -> None: ...

    def in_main() -> None: ...

    in_main.__module__ = "__main__"
    in_main.__qualname__ = "in_main"

    with pytest.raises(SignatureInvalid, match=r"local.*cannot be isolated.*top of the module"):
        Handler.of("key", local, isolate=True)
    with pytest.raises(SignatureInvalid, match="lambda"):
        Handler.of("key", lambda: 1, isolate=True)
    with pytest.raises(SignatureInvalid, match=r"in_main cannot be isolated: it is defined in __main__"):
        Handler.of("key", in_main, isolate=True)
    with pytest.raises(SignatureInvalid, match="cannot be isolated"):
        Handler.of("key", AsyncCallable().__call__, isolate=True)
