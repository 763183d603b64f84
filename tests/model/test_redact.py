"""Which fields are secrets, and that they are found and masked wherever they got to."""

import json
import re
from base64 import b64encode
from typing import Annotated, Any
from urllib.parse import quote, quote_plus

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead import Secret
from fairlead.model.outcome import Failed, Succeeded
from fairlead.model.secrets.redact import (
    MASK,
    Mask,
    build_mask,
    find_secrets,
    is_hidden_by,
    mask_dedupe_key,
    mask_paths,
    mask_payload,
    restore_masked,
    secret_paths,
)
from fairlead.model.signature import derive_argument_schema
from tests.tables import each_case

SECRET = {"type": "string", "x-secret": True}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@each_case(
    ("schema", "paths"),
    [
        (True, []),
        (of(name={"type": "string"}), []),
        (of(token={"writeOnly": True}), ["/token"]),
        (of(token={"writeOnly": False}), []),
        (of(smtp=of(password=SECRET)), ["/smtp/password"]),
        (of(users={"items": of(token=SECRET)}), ["/users/*/token"]),
        (of(pair={"prefixItems": [{}, SECRET]}), ["/pair/1"]),
        ({"additionalProperties": SECRET}, ["/*"]),
        ({"patternProperties": {"^x-": SECRET}}, ["/*"]),
        ({"allOf": [of(a=SECRET)], "anyOf": [of(b=SECRET)], "oneOf": [of(c=SECRET)]}, ["/a", "/b", "/c"]),
        ({"if": of(a={}), "then": of(b=SECRET), "else": of(c=SECRET)}, ["/b", "/c"]),
        ({"$defs": {"T": SECRET}, **of(t={"$ref": "#/$defs/T"})}, ["/t"]),
        ({"x-secret": True}, [""]),
        (of(**{"a/b~c": SECRET}), ["/a~1b~0c"]),
        # a tree: at any depth
        (
            {"$ref": "#/$defs/N", "$defs": {"N": of(pin=SECRET, next={"$ref": "#/$defs/N"})}},
            ["/**/pin", "/pin"],
        ),
        # what cannot be followed hides everything
        ({"$defs": {"T": {"$anchor": "t", **SECRET}}, **of(t={"$ref": "#t"})}, ["/**"]),
        ({"$defs": {"T": SECRET}, **of(t={"$ref": "#/$defs/Nowhere"})}, ["/**"]),
    ],
)
def test_the_marked_fields_of_a_schema_are_found(schema: Any, paths: list[str]) -> None:
    assert secret_paths(schema) == paths


def test_a_schema_that_grows_by_its_references_ends_and_hides_everything() -> None:
    levels = {
        f"L{n}": of(a={"$ref": f"#/$defs/L{n + 1}"}, b={"$ref": f"#/$defs/L{n + 1}"}) for n in range(40)
    }
    schema = {"$ref": "#/$defs/L0", "$defs": {**levels, "L40": SECRET}}

    assert secret_paths(schema) == ["/**"]
    assert mask_paths({"a": 1}, ["/**"]) == MASK


def test_a_secret_parameter_of_a_function_is_marked() -> None:
    class Login(msgspec.Struct):
        user: str
        password: Annotated[str, Secret()]

    def send(
        to: str, token: Annotated[str, Secret()], login: Login, pin: Annotated[int, Secret()] | None = None
    ) -> None:
        """Sends."""

    assert secret_paths(derive_argument_schema(send)) == ["/login/password", "/pin", "/token"]


def test_secrets_are_hidden_and_the_rest_is_not() -> None:
    payload = {"to": "a", "smtp": {"password": "pw", "port": 25}, "users": [{"token": 1}, {"name": "n"}]}
    paths = ["/smtp/password", "/users/*/token", "/absent/deep"]

    assert mask_paths(payload, paths) == {
        "to": "a",
        "smtp": {"password": MASK, "port": 25},
        "users": [{"token": MASK}, {"name": "n"}],
    }
    assert find_secrets(payload, paths) == ["pw", 1]
    assert "pw" in str(payload)


def test_a_secret_in_a_tree_is_hidden_at_every_depth() -> None:
    tree = {"pin": "1111", "next": {"pin": "2222", "next": {"pin": "3333", "name": "n"}}}

    assert mask_paths(tree, ["/**/pin", "/pin"]) == {
        "pin": MASK,
        "next": {"pin": MASK, "next": {"pin": MASK, "name": "n"}},
    }


def test_a_mask_that_was_left_in_an_edited_payload_stands_for_the_stored_secret() -> None:
    stored = {"token": "old", "users": [{"token": "u1"}, {"token": "u2"}], "to": "a"}
    paths = ["/token", "/users/*/token"]
    edited = {**mask_paths(stored, paths), "to": "b"}
    edited["users"][1] = {"token": "new"}

    assert restore_masked(edited, stored, mask_paths(stored, paths)) == {
        "token": "old",
        "users": [{"token": "u1"}, {"token": "new"}],
        "to": "b",
    }
    # outside of secrets the word is only a word, and one that stands for nothing stays
    assert restore_masked({"to": MASK, "token": MASK}, {"to": "a"}, {"to": "a"}) == {
        "to": MASK,
        "token": MASK,
    }


@each_case(
    "said",
    [
        "token sk-'quoted' failed",
        f"{['sk-' + chr(39) + 'quoted' + chr(39)]!r}",
        '{"token":"sk-\'quoted\'"}',
        "https://x/?t=sk-%27quoted%27",
    ],
)
def test_a_secret_is_masked_in_whatever_form_it_appears(said: str) -> None:
    masked = Mask(["sk-'quoted'"]).text(said)

    assert "quoted" not in masked
    assert MASK in masked


SLASHED = "abc/def+ghi=="
ACCENTED = "pässwörd/1"


@each_case(
    ("secret", "said"),
    [
        (ACCENTED, json.dumps({"key": ACCENTED})),
        (ACCENTED, json.dumps({"key": ACCENTED}).replace("/", "\\/")),
        (ACCENTED, json.dumps({"key": ACCENTED}, ensure_ascii=False).replace("/", "\\/")),
        (ACCENTED, f"https://x/{quote(ACCENTED)}"),
        (SLASHED, json.dumps({"key": SLASHED}).replace("/", "\\/")),
        (SLASHED, f"https://x/{quote(SLASHED)}"),
        (SLASHED, f"https://x/?key={quote(SLASHED, safe='')}"),
        ("plain-word_1.2~", f"https://x/?key={quote_plus('plain-word_1.2~')}"),
    ],
)
def test_a_secret_is_masked_as_other_programs_encode_it(secret: str, said: str) -> None:
    masked = Mask([secret]).text(said)

    assert masked.count(MASK) == 1
    assert not any(part in masked for part in ("def", "ghi", "ssw", "rd", "plain"))


@given(st.text(alphabet="aZ09_.~-/+=\"'\\ ä\n%", min_size=4, max_size=12))
def test_no_encoding_shows_a_secret(secret: str) -> None:
    mask = Mask([secret])

    for said in (repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(secret), quote_plus(secret)):
        assert mask.text(said) == MASK


BASIC = b64encode(b"ada:pass/word").decode()


@each_case(
    ("header", "said", "shown"),
    [
        ("Bearer sk_live_123", "Invalid API key: sk_live_123", f"Invalid API key: {MASK}"),
        ("Bearer abcdefgh", "no abcdefgh", f"no {MASK}"),
        ("Own-Scheme  id=12345678, sig=abc/defg", "of sig=abc/defg", f"of {MASK}"),
        (f"Basic {BASIC}", f"not {BASIC}", f"not {MASK}"),
        (f"basic {BASIC}", "ada:pass/word", MASK),
        (
            f"Basic {BASIC}",
            '{"user":"ada","password":"pass\\/word"}',
            f'{{"user":"ada","password":"{MASK}"}}',
        ),
        ("Basic no-base64", "no-base64", MASK),
        ("Basic ", "Basic", "Basic"),
        ("Bearer short", "Bearer of short", "Bearer of short"),
        ("a customer of yesterday", "customer of yesterday", "customer of yesterday"),
    ],
)
def test_what_a_header_holds_is_masked_without_its_scheme(header: str, said: str, shown: str) -> None:
    assert Mask([{"authorization": header}]).text(said) == shown


@each_case(
    "between",
    ["\x1b[0m", "\x1b[31m\x1b[1m", "\x9b0m", "\x1b]0;a title\x07", "\x1b(B", "\x08", "\u200e"],
)
def test_a_secret_that_escapes_divide_is_masked_as_it_is_shown_undivided(between: str) -> None:
    mask = Mask(["correct-horse-battery"], (re.compile("sk-[a-z]+"),))
    said = (
        f"\x1b[32mbefore\x1b[0m {between.join('correct-horse-battery')} and s{between}k-a{between}bc.\x1b[0m"
    )

    shown = mask.text(said)

    assert shown == f"\x1b[32mbefore\x1b[0m {MASK} and {MASK}.\x1b[0m"
    assert mask.text(shown) == shown
    assert mask.value({between.join("correct-horse-battery"): 1}) == {MASK: 1}


def test_a_long_secret_is_found_in_an_output_though_escapes_divide_it() -> None:
    mask = Mask(["correct-horse-battery"])

    assert mask.finds_long({"said": ["\x1b]0;title\x07correct-\x1b[1mhorse-battery"]})
    assert not mask.finds_long({"said": ["correct-\x1b[1mhorse"]})


def test_of_a_text_that_lost_its_end_no_escape_shows_the_beginning_of_a_secret() -> None:
    said = "x" * 100 + "c\x1b[0mo\x1b[1m" * 40 + "\x1b[3"

    assert set(Mask(["co" * 40 + "rrect"]).mask_beginning(said)) == {"x"}


def test_secrets_of_lines_are_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"

    assert "kqhkiG9w" not in Mask([key]).text("line 3: kqhkiG9w0BAQEF")
    assert "MIIEvQ" not in Mask([key]).text(repr({"key": key}))


def test_numbers_and_texts_that_are_too_short_to_tell_are_left() -> None:
    mask = Mask(["abc", 12345, 123456, True, None])

    assert mask.text("abc 12345 123456") == f"abc 12345 {MASK}"
    assert mask.value({"n": 123456, "m": 12345, "ok": True}) == {"n": MASK, "m": 12345, "ok": True}


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Mask(["hunter", "hunter2000"]).text("hunter2000") == MASK


@each_case("text", ["token correct-hor…", "…se-battery was refused", "correct-horse-batter"])
def test_a_part_of_a_secret_is_looked_for_nowhere(text: str) -> None:
    """Who may choose a text would learn the secret letter by letter."""
    mask = Mask(["correct-horse-battery"])

    assert mask.text(text) == text
    assert mask.outcome(Failed("E", text, traceback=text)) == Failed("E", text, traceback=text)


@each_case("cut", range(1, 22))
def test_of_a_text_that_lost_its_end_nothing_is_shown_that_may_be_a_secret(cut: int) -> None:
    secret, other = "correct-horse-battery", "another-word-as-large"
    text = "x" * 100 + secret[:cut]

    shown = Mask([secret]).mask_beginning(text)

    assert set(shown) == {"x"}
    assert shown == Mask([other]).mask_beginning(text)
    assert Mask([secret]).mask_beginning(secret + "y" * 100).startswith(MASK + "y")


def test_a_short_secret_is_not_compared_with_what_a_user_chose() -> None:
    mask = Mask(["hunter2", "correct-horse-battery"])

    assert mask.mask_chosen("hunter2 correct-horse-battery") == f"hunter2 {MASK}"
    assert mask.mask_chosen(None) is None


def test_where_there_are_too_many_secrets_to_look_for_nothing_is_shown() -> None:
    mask = Mask([f"secret-{n}" for n in range(1000)])

    assert mask.value({"n": 1, "text": "harmless"}) == {MASK: MASK}


def test_names_and_nested_values_of_an_output_are_masked() -> None:
    mask = Mask([{"deep": ["s3cret"]}])

    assert mask.outcome(Succeeded({"s3cret": [{"x": "as3cretb"}]})) == Succeeded({MASK: [{"x": f"a{MASK}b"}]})


def test_a_payload_is_masked_by_path_and_pattern_and_its_names_stay() -> None:
    payload = {"prod": [{"prod": "prod"}], "key": "prod", "card": "no 1234"}

    shown = mask_payload(payload, ["/key"], (re.compile(r"\d{4}|prod-"),))

    assert shown == {"prod": [{"prod": "prod"}], "key": MASK, "card": f"no {MASK}"}


def test_patterns_are_masked_in_texts_and_numbers() -> None:
    mask = Mask((), (re.compile(r"\b\d{16}\b"),))

    assert mask.value({"card": 4111111111111111, "text": "4111111111111111!"}) == {
        "card": MASK,
        "text": f"{MASK}!",
    }


def test_there_is_no_mask_where_there_is_nothing_to_mask() -> None:
    assert build_mask({"a": "b"}, []) is None
    assert build_mask({"a": "b"}, ["/c"]) is None
    assert build_mask({"a": "b"}, ["/a"]) is not None


def test_a_dedupe_key_made_from_a_payload_is_shown_without_its_secrets() -> None:
    key = 'send::acme::{"pin":"12","to":"x::{"}'

    assert mask_dedupe_key(key, "send", ["/pin"], Mask([])) == f'send::acme::{{"pin":"{MASK}","to":"x::{{"}}'
    long = "correct-horse-battery"
    assert mask_dedupe_key(f"by-hand-{long}", "send", ["/pin"], Mask([long])) == f"by-hand-{MASK}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below, max_size=3),
    max_leaves=12,
)


@given(json_values, json_values, st.lists(st.text(alphabet="ab*/~", max_size=6).map("/".__add__), max_size=3))
def test_hiding_and_restoring_gives_the_payload_back(payload: Any, other: Any, paths: list[str]) -> None:
    assert restore_masked(mask_paths(payload, paths), payload, mask_paths(payload, paths)) == payload
    restore_masked(other, payload, mask_paths(payload, paths))  # whatever was edited


@given(st.text(min_size=4, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_text_has_the_secret_after_masking(secret: str, before: str, after: str) -> None:
    masked = Mask([secret]).text(before + secret + after)

    assert secret not in masked.replace(MASK, "\0\0")


def test_the_default_of_a_secret_parameter_is_not_in_the_schema() -> None:
    def send(
        to: str = "ada",
        token: Annotated[str, Secret()] = "canary",  # noqa: S107
        pin: Annotated[str, Secret()] | None = "canary",
    ) -> None:
        """Sends."""

    schema = derive_argument_schema(send)

    assert "canary" not in str(schema)
    assert schema["properties"]["to"]["default"] == "ada"


@each_case(
    ("path", "paths", "hidden"),
    [
        ("/a/b", ["/a/b"], True),
        ("/a/b", ["/a"], True),
        ("/a", ["/a/b"], False),
        ("/a/b", ["/a/*"], True),
        ("/a/*", ["/a/b"], False),
        ("/a/*/c", ["/a/*/c"], True),
        ("/a/b/c", ["/**/c"], True),
        ("/**", ["/a"], False),
        ("/a", [], False),
    ],
)
def test_a_path_is_hidden_by_paths_that_hide_all_of_it(path: str, paths: list[str], hidden: bool) -> None:  # noqa: FBT001
    assert is_hidden_by(path, paths) is hidden
