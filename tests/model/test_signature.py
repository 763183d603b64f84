from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import msgspec
import pytest

from fairlead.errors import SignatureInvalid
from fairlead.model.definition import check_payload, compile_schema
from fairlead.model.signature import bind_arguments, derive_argument_schema
from tests.tables import each_case


@dataclass
class Folder:
    path: str
    depth: int = 1


async def sync(  # type: ignore[no-untyped-def]
    ctx: object,
    provider_id: UUID,
    since: datetime | None = None,
    mode: Literal["full", "quick"] = "quick",
    folders: list[Folder] = [],  # noqa: B006
    limit: Annotated[int, msgspec.Meta(ge=1)] = 10,
    untyped=None,  # noqa: ANN001
) -> None: ...


def test_parameters_become_properties_with_their_types() -> None:
    schema = derive_argument_schema(sync)

    assert schema["required"] == ["provider_id"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["provider_id"] == {"type": "string", "format": "uuid"}
    assert schema["properties"]["limit"]["minimum"] == 1
    assert "ctx" not in schema["properties"]
    assert set(schema["$defs"]) == {"Folder"}


@each_case(
    ("payload", "fits"),
    [
        ({"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"}, True),
        (
            {
                "provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09",
                "folders": [{"path": "/"}],
                "untyped": [1],
            },
            True,
        ),
        ({"provider_id": "x"}, False),
        ({"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "limit": 0}, False),
        ({"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "mode": "other"}, False),
        ({"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "surprise": 1}, False),
    ],
)
def test_the_schema_admits_what_the_function_takes(payload: dict[str, Any], *, fits: bool) -> None:
    compiled = compile_schema(derive_argument_schema(sync))
    assert compiled.is_valid(payload) is fits
    if fits:
        check_payload(compiled, "sync", payload)


def test_a_function_that_takes_anything_admits_anything() -> None:
    def open_ended(ctx: object, **rest: Any) -> None: ...

    assert compile_schema(derive_argument_schema(open_ended)).is_valid({"whatever": [1, 2]})


def test_a_parameter_of_the_type_object_admits_anything() -> None:
    def store(
        value: object,
        more: dict[str, object],
        rest: list[dict[str, object]],
        perhaps: object | None = None,
        more_perhaps: Optional[dict[str, object | None]] = None,  # noqa: UP045 - people write it in both ways
    ) -> None: ...

    compiled = compile_schema(derive_argument_schema(store))
    payload = {"value": [1, None], "more": {"a": {}}, "rest": [{"b": 1}]}
    assert compiled.is_valid(payload)
    assert compiled.is_valid({**payload, "perhaps": {"a": [1]}, "more_perhaps": {"a": None, "b": 2}})
    assert compiled.is_valid({**payload, "perhaps": None, "more_perhaps": None})
    assert not compiled.is_valid({**payload, "more": 2})
    assert not compiled.is_valid({**payload, "more_perhaps": 2})


def test_a_function_without_parameters_takes_an_empty_payload() -> None:
    def nothing() -> None: ...

    compiled = compile_schema(derive_argument_schema(nothing))
    assert compiled.is_valid({})
    assert not compiled.is_valid({"a": 1})


def positional(a: int, /) -> None: ...


def starred(*args: int) -> None: ...


def takes_tenant(tenant: str) -> None: ...


def odd_type(a: Callable[[], None]) -> None: ...


@each_case("function", [positional, starred, takes_tenant, odd_type])
def test_a_signature_that_no_payload_can_call_is_refused(function: Callable[..., None]) -> None:
    with pytest.raises(SignatureInvalid, match=function.__name__):
        derive_argument_schema(function)


# Binding


def test_arguments_are_bound_by_name_without_the_context_and_without_defaults() -> None:
    def work(ctx: object, a: int, b: int = 2, **rest: int) -> None: ...

    assert bind_arguments(work, (1,), {}) == {"a": 1}
    assert bind_arguments(work, (), {"a": 1, "b": 3}) == {"a": 1, "b": 3}
    assert bind_arguments(work, (1, 3), {"c": 4, "rest": 5}) == {"a": 1, "b": 3, "c": 4, "rest": 5}


@each_case(("args", "kwargs"), [((), {}), ((1, 2), {}), ((), {"a": 1, "c": 2}), ((1,), {"a": 1})])
def test_arguments_that_do_not_fit_are_a_type_error(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    def work(a: int) -> None: ...

    with pytest.raises(TypeError):
        bind_arguments(work, args, kwargs)
