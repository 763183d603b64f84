"""One test for a table of cases: it tries them all, and fails with a line for each that is wrong.

A case of pytest's own (`parametrize`) costs half a millisecond in every test process, even in those that do not run it, and
brings its fixtures anew. That is right for a case that changes something. Cases that only ask a function, or only read, go here.
"""

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

WRONG = (Exception, pytest.fail.Exception)
LONGEST_NAME = 100


class Faults:
    """What is wrong with the cases that were tried so far."""

    def __init__(self) -> None:
        self.tried = 0
        self.texts: list[str] = []

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Try a case: what it raises is kept, with its name and its line."""
        self.tried += 1
        try:
            yield
        except WRONG as error:
            # the frames are this one, that of the loop and that of the test, if the case came so far
            frames = traceback.extract_tb(error.__traceback__)
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            text = f"{name}, line {frames[:3][-1].lineno}: {kind}{error}"
            self.texts.append(text.replace("\n", "\n    "))

    def conclude(self) -> None:
        assert self.tried, "no case was tried"
        if self.texts:
            raise AssertionError("\n".join([f"{len(self.texts)} of {self.tried} are wrong:", *self.texts]))


def each_case(
    names: str | tuple[str, ...],
    cases: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    ids: Sequence[str] | Callable[[Any], Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `pytest.mark.parametrize`, but one test. All cases share its fixtures, so none may change what another sees.

    `cases` may be a function that makes them: then collecting the tests does not.
    """
    taken = (names,) if isinstance(names, str) else names

    def named_cases() -> Iterator[tuple[str, dict[str, Any]]]:
        table: Any = cases() if callable(cases) and not isinstance(cases, type) else cases
        for number, case in enumerate(table):
            values = (case,) if isinstance(names, str) else tuple(case)
            name = ", ".join(describe(value, ids) for value in values)
            yield name if ids is None or callable(ids) else ids[number], dict(zip(taken, values, strict=True))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def check(**fixtures: Any) -> None:
            faults = Faults()
            for name, values in named_cases():
                with faults.of(name):
                    test(**fixtures, **values)
            faults.conclude()

        @functools.wraps(test)
        async def check_async(**fixtures: Any) -> None:
            faults = Faults()
            for name, values in named_cases():
                with faults.of(name):
                    await test(**fixtures, **values)
            faults.conclude()

        whole: Callable[..., Any] = check_async if inspect.iscoroutinefunction(test) else check
        fixtures = [value for name, value in signature.parameters.items() if name not in taken]
        whole.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return whole

    return decorate


def describe(value: object, ids: object = None) -> str:
    """A short name of a value in a table."""
    name = ids(value) if callable(ids) else None
    name = str(name or getattr(value, "__name__", None) or repr(value))
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
