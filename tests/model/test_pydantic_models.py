import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, field_validator

from fairlead import errors
from fairlead.errors import PayloadNotJson, SignatureInvalid
from fairlead.handlers.registry import Handler, PayloadInvalid
from fairlead.model.definition import check_payload, compile_schema
from fairlead.model.payload import encode
from fairlead.model.secrets.redact import secret_paths
from fairlead.model.signature import derive_argument_schema
from tests.tables import each_case


class Address(BaseModel):
    street: str


class Customer(BaseModel):
    model_config = ConfigDict(strict=True)

    id: UUID
    since: datetime
    home: Address | None = None
    friends: "list[Customer]" = []
    credit: int = Field(default=0, alias="creditCents", ge=0)
    pin: str = Field(default="0000", json_schema_extra={"writeOnly": True})

    @field_validator("pin")
    @classmethod
    def four_digits(cls, pin: str) -> str:
        if len(pin) != 4:
            raise ValueError("must have four digits")
        return pin


class Either(RootModel[Customer | Address]):
    pass


SINCE = datetime(2026, 1, 1, tzinfo=UTC)
ADA = Customer(id=UUID(int=1), since=SINCE, creditCents=5, home=Address(street="Ockham Park"))
GRACE = Customer(id=UUID(int=2), since=SINCE, friends=[ADA])


def greet(
    who: Customer,
    others: list[Customer] = [],  # noqa: B006
    at: Address | None = None,
    either: Either = Either(Address(street="here")),  # noqa: B008
) -> Any:
    return who, others, at, either


def called(payload: Any) -> Any:
    """What the function is called with, if enqueue lets the payload pass."""
    check_payload(compile_schema(derive_argument_schema(greet)), "greet", payload)
    return tuple(Handler.of("greet", greet)._convert_payload(payload).values())


def test_models_arrive_as_they_were_passed() -> None:
    payload, _ = encode({"who": GRACE, "others": [ADA, GRACE], "at": ADA.home, "either": Either(ADA)})

    assert payload["who"]["friends"][0]["creditCents"] == 5
    assert called(payload) == (GRACE, [ADA, GRACE], ADA.home, Either(ADA))
    assert called({"who": payload["who"]}) == (GRACE, [], None, Either(Address(street="here")))


@each_case(
    "change",
    [
        {"id": "x"},
        {"creditCents": -1},
        {"home": {}},
        {"friends": [{"id": str(UUID(int=1))}]},
        {"since": None},
    ],
)
def test_what_does_not_fit_the_model_is_refused_by_its_schema(change: dict[str, Any]) -> None:
    payload, _ = encode({"who": {**encode(ADA)[0], **change}})

    with pytest.raises(errors.PayloadInvalid):
        called(payload)


def test_what_only_the_model_refuses_is_refused_by_the_worker_without_its_value() -> None:
    payload, _ = encode({"who": {**encode(ADA)[0], "pin": "hunter2"}})

    with pytest.raises(PayloadInvalid, match=r"pin: .*must have four digits.*\$\.who") as refused:
        called(payload)
    assert "hunter2" not in str(refused.value)


def test_a_secret_of_a_model_is_found() -> None:
    assert "/who/pin" in secret_paths(derive_argument_schema(greet))


def test_two_models_of_one_name_keep_their_own_parts() -> None:
    def of(kind: Any) -> Any:
        class Part(BaseModel):
            value: kind

        class Whole(BaseModel):
            part: Part

        return Whole

    def both(a: Any, b: Any) -> None: ...

    both.__annotations__ |= {"a": of(int), "b": of(str)}
    schema = compile_schema(derive_argument_schema(both))

    check_payload(schema, "both", {"a": {"part": {"value": 1}}, "b": {"part": {"value": "x"}}})
    with pytest.raises(errors.PayloadInvalid):
        check_payload(schema, "both", {"a": {"part": {"value": "x"}}, "b": {"part": {"value": "x"}}})


def test_a_secret_that_would_become_asterisks_is_refused() -> None:
    class Login(BaseModel):
        password: SecretStr

    with pytest.raises(PayloadNotJson, match="writeOnly") as refused:
        encode({"login": Login(password=SecretStr("hunter2"))})
    assert "hunter2" not in str(refused.value)


def test_a_type_without_a_json_form_is_named() -> None:
    class Odd: ...

    def function(x: Odd) -> None: ...

    function.__annotations__["x"] = Odd
    with pytest.raises(SignatureInvalid, match=r"Odd has no JSON form\. Annotate .* pydantic"):
        derive_argument_schema(function)


@pytest.mark.thorough
def test_who_has_no_models_never_imports_pydantic() -> None:
    program = """
import sys, uuid, fairlead
from fairlead.model.payload import encode
fl = fairlead.Fairlead()
@fl.job
def count(n: uuid.UUID) -> None: ...
encode({"n": uuid.uuid4()})
sys.exit("pydantic" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
