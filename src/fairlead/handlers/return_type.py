"""The type that a function declares for what it returns."""

from functools import lru_cache
from types import NoneType
from typing import Any, Never, NoReturn, TypeVar, get_args, get_type_hints

_SAYS_NOTHING = (Any, object, None, NoneType, Never, NoReturn)


@lru_cache(1000)
def find_return_type(function: Any) -> Any:
    """The declared type; Any if there is none, or if it cannot be resolved."""
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - a name that cannot be resolved, for instance
        return Any


def always_returns_value(function: Any) -> bool:
    """Whether the function declares that it returns something, and never None."""
    kind = find_return_type(function)
    kind = getattr(kind, "__value__", kind)  # of a `type` statement
    return kind not in _SAYS_NOTHING and not isinstance(kind, TypeVar) and NoneType not in get_args(kind)
