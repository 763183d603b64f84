"""What is refused is refused in plain words: what is wrong, and what to do."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fairlead
from fairlead import errors
from fairlead.errors import FairleadError, Forbidden, SettingInvalid
from fairlead.handlers.email_api import describe_refusal
from fairlead.model.access import Permission, Principal, Role
from fairlead.settings import load
from tests.tables import each_case

SOURCE = Path(fairlead.__file__).parent
REFUSALS = {
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, FairleadError)
}
REFUSALS |= {"Fault", "Flaw", "Failed", "TemporaryFailure", "PermanentFailure", "RequestRefused"}
# Words that leave open who does what, or what is wrong.
OPAQUE = re.compile(
    r"(?<!`)\b(somebody|nobody|whoever|anybody)\b|cannot be so|not good|may not \{|\ba operator\b|pattern\}",
    re.IGNORECASE,
)


def _messages() -> Iterator[tuple[str, str]]:
    """Every message of a refusal in a file with such a word, as the source has it, and where."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if not OPAQUE.search(text):  # to parse all files takes seconds
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _name(node.func) in REFUSALS:
                for argument in node.args:
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", ast.unparse(argument)


def _name(function: ast.expr) -> str:
    return str(getattr(function, "attr", getattr(function, "id", "")))


def test_no_refusal_leaves_open_who_does_what() -> None:
    opaque = [f"{where}: {text}" for where, text in _messages() if OPAQUE.search(text)]

    assert opaque == []


def test_a_missing_permission_is_named_with_the_roles_that_have_it() -> None:
    operator = Principal("token:ci", Role.OPERATOR)

    with pytest.raises(Forbidden) as refused:
        operator.require(Permission.MANAGE_SYSTEM)

    assert refused.value.message == (
        "token:ci (operator) lacks the permission system.manage. Ask for a role that has it: super_admin."
    )


@each_case(
    ("code", "message", "said"),
    [
        (None, None, "Resend answered 503"),
        ("rate_limit", None, "Resend answered 503: rate_limit"),
        ("rate_limit", "too many", "Resend answered 503: rate_limit: too many"),
    ],
)
def test_a_provider_is_quoted_as_far_as_it_said_something(
    code: str | None, message: str | None, said: str
) -> None:
    assert describe_refusal("Resend", 503, code, message) == said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"pool_size": "x"}, "Invalid value 'x' for the setting pool_size: it must be a whole number."),
        ({"lease_seconds": "x"}, "Invalid value 'x' for the setting lease_seconds: it must be a number."),
        ({"enable_tick": "x"}, "Invalid value 'x' for the setting enable_tick: it must be true or false."),
    ],
)
def test_a_setting_says_what_it_must_be(flags: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid) as refused:
        load(flags, environ={}, file=tmp_path / "none.toml")

    assert refused.value.message == said
