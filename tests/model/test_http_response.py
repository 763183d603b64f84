from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.messages.http_response import LONGEST_VALUE, MAX_HEADERS, decode_body, select_headers
from fairlead.model.payload import encode
from fairlead.model.secrets.redact import Mask
from tests.tables import each_case

TYPES = st.sampled_from(
    ["application/json", "text/plain; charset=iso-8859-1", "x", "", "text/html;charset=utf-16"]
)


@given(st.binary(max_size=2000), TYPES, st.booleans())
def test_whatever_is_answered_can_be_kept(content: bytes, kind: str, truncated: bool) -> None:  # noqa: FBT001
    body = decode_body(content, {"content-type": kind}, truncated=truncated)

    assert len(encode({"body": body}, max_bytes=2**20)[1]) <= 20 + 6 * len(content)


@each_case(
    ("content", "kind", "body"),
    [
        (b'{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
        (b"[1]", "application/problem+json", [1]),
        (b"[1]", "text/plain", "[1]"),
        (b"[1", "application/json", "[1"),
        (b'{"a": "\\u0000"}', "application/json", '{"a": "\\u0000"}'),
        (b"\xe9", "text/plain; charset=ISO-8859-1", "é"),
        (b"\xe9", "text/plain; charset=punycode", "\ufffd"),
        (b"", "application/json", None),
    ],
)
def test_a_body_is_json_or_text_or_nothing(content: bytes, kind: str, body: Any) -> None:
    assert decode_body(content, {"content-type": kind}, truncated=False) == body


def test_headers_are_bounded_and_those_with_secrets_left_out() -> None:
    many = [(f"x-{n}", "v" * 5000) for n in range(100)]
    secrets = [("Set-Cookie", "s"), ("X-Auth-Token", "s"), ("X-Api-Key", "s"), ("WWW-Authenticate", "s")]

    shown = select_headers([*secrets, ("Etag", "1"), *many, ("etag", "2")])

    assert shown["etag"] == "1, 2"
    assert len(shown) == MAX_HEADERS
    assert max(map(len, shown.values())) == LONGEST_VALUE
    assert "s" not in shown.values()


@each_case("cut", range(1, 36))
def test_an_answer_that_is_cut_shows_no_piece_of_a_secret(cut: int) -> None:
    secret = "Beadc0de-7f3a-41bc-9d55-0c4e8aa2b791"  # noqa: S105
    mask = Mask([secret])
    content = b"x" * 200 + secret[:cut].encode()

    assert set(str(decode_body(content, {}, truncated=True, mask=mask))) == {"x"}
    said = "x" * (LONGEST_VALUE - cut) + secret
    assert select_headers([("x-said", said)], mask)["x-said"].strip("[redact]") == "x" * (LONGEST_VALUE - cut)
