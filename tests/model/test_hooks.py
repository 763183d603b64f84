"""Deliveries to hooks: signatures as their senders document them, and what a delivery becomes."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given as examples_of
from hypothesis import settings
from hypothesis import strategies as st

from fairlead.errors import BodyNotJson, ContentTypeUnsupported, HookInvalid
from fairlead.model.event import find_name_fault
from fairlead.model.hooks.delivery import HookDelivery, read_delivery
from fairlead.model.hooks.hook import (
    Refusal,
    Scheme,
    UniqueBy,
    build_event_name,
    check_hook,
    check_secret,
    generate_secret,
)
from fairlead.model.hooks.signatures import MOST_SIGNATURES, verify
from tests.signing import signed
from tests.tables import each_case
from tests.thorough import examples

# From https://github.com/standard-webhooks/standard-webhooks, the tests of its libraries.
STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
STANDARD_BODY = b'{"test": 2432232314}'
STANDARD_HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
# From "Validating webhook deliveries" in GitHub's documentation.
GITHUB_SECRET = "It's a Secret to Everybody"  # noqa: S105
GITHUB_HEADERS = {
    "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
}
# From "Verifying requests from Slack" in Slack's documentation.
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"  # noqa: S105
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK_HEADERS = {
    "x-slack-request-timestamp": "1531420618",
    "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}
SECRETS = {
    Scheme.STANDARD: STANDARD_SECRET,
    Scheme.GITHUB: GITHUB_SECRET,
    Scheme.STRIPE: "whsec_test_secret_of_stripe",
    Scheme.SLACK: SLACK_SECRET,
}
NOW = 1_700_000_000


def why(
    scheme: Scheme, headers: dict[str, str], body: bytes, *secrets: str, now: float = NOW
) -> Refusal | None:
    return verify(scheme, secrets or [SECRETS[scheme]], headers, body, now=now, tolerance_seconds=300)


def read(
    scheme: Scheme, headers: dict[str, str], body: Any, unique_by: UniqueBy = UniqueBy.ID
) -> HookDelivery:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_delivery(scheme, headers, text, hook="a", unique_by=unique_by)


@each_case(
    ("scheme", "headers", "body", "now"),
    [
        (Scheme.STANDARD, STANDARD_HEADERS, STANDARD_BODY, 1_614_265_330),
        (Scheme.GITHUB, GITHUB_HEADERS, b"Hello, World!", NOW),
        (Scheme.SLACK, SLACK_HEADERS, SLACK_BODY, 1_531_420_618),
    ],
)
def test_the_senders_documented_deliveries_are_accepted(
    scheme: Scheme, headers: dict[str, str], body: bytes, now: float
) -> None:
    assert why(scheme, headers, body, now=now) is None
    assert why(scheme, headers, body + b" ", now=now) is Refusal.SIGNATURE_WRONG
    if scheme is not Scheme.GITHUB:
        assert why(scheme, headers, body, now=now + 301) is Refusal.TOO_OLD
        assert why(scheme, headers, body, now=now - 301) is Refusal.TOO_OLD
        assert why(scheme, headers, body, now=now + 299) is None


@each_case("scheme", Scheme)
def test_no_part_of_a_signed_delivery_can_be_changed(scheme: Scheme) -> None:
    headers = signed(scheme, SECRETS[scheme], b"{}", sent_at=NOW)
    assert why(scheme, headers, b"{}") is None
    assert why(scheme, headers, b"{}", "whsec_" + "A" * 32) is Refusal.SIGNATURE_WRONG
    unsigned = {"content-type", "x-github-event", "x-github-delivery"}
    for name in headers.keys() - unsigned:
        without = {key: value for key, value in headers.items() if key != name}
        assert why(scheme, without, b"{}") is Refusal.SIGNATURE_MISSING
        for changed in (
            headers[name][:-1] + "~",
            headers[name] + "0",
            "",
            "é",
            headers[name].replace("=", ""),
        ):
            if changed != headers[name]:
                assert why(scheme, {**headers, name: changed}, b"{}") is not None, (name, changed)
    moved = {name: value.replace(str(NOW), str(NOW + 1)) for name, value in headers.items()}
    assert scheme is Scheme.GITHUB or why(scheme, moved, b"{}") is Refusal.SIGNATURE_WRONG


@each_case("scheme", Scheme)
def test_two_secrets_are_valid_while_a_sender_changes_over(scheme: Scheme) -> None:
    old, new = SECRETS[scheme], "whsec_" + "B" * 32
    for secret in (old, new):
        headers = signed(scheme, secret, b"{}", sent_at=NOW)
        assert why(scheme, headers, b"{}", new, old) is None
    assert why(scheme, signed(scheme, old, b"{}", sent_at=NOW), b"{}", new) is Refusal.SIGNATURE_WRONG


def test_one_of_several_signatures_is_enough_and_their_number_is_limited() -> None:
    mine = signed(Scheme.STRIPE, SECRETS[Scheme.STRIPE], b"{}", sent_at=NOW)["stripe-signature"]
    rolled = mine.replace(",v1=", ",v1=" + "0" * 64 + ",v1=")
    assert why(Scheme.STRIPE, {"stripe-signature": rolled}, b"{}") is None
    many = mine.replace(",v1=", ",v1=0" * MOST_SIGNATURES + ",v1=")
    assert why(Scheme.STRIPE, {"stripe-signature": many}, b"{}") is Refusal.SIGNATURE_WRONG
    several = "v1a,xxx v1,AAAA " + STANDARD_HEADERS["webhook-signature"]
    headers = {**STANDARD_HEADERS, "webhook-signature": several}
    assert why(Scheme.STANDARD, headers, STANDARD_BODY, now=1_614_265_330) is None


@examples_of(st.sampled_from(Scheme), st.binary(max_size=200), st.binary(min_size=1, max_size=20))
def test_exactly_the_signed_bytes_are_accepted(scheme: Scheme, body: bytes, more: bytes) -> None:
    headers = signed(scheme, SECRETS[scheme], body, sent_at=NOW)
    assert why(scheme, headers, body) is None
    assert why(scheme, headers, body + more) is Refusal.SIGNATURE_WRONG
    assert why(scheme, headers, more + body) is Refusal.SIGNATURE_WRONG


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.deeper
@settings(max_examples=examples(200))
@examples_of(st.sampled_from(Scheme), st.dictionaries(st.text(max_size=5), json_values, max_size=4))
def test_the_event_has_the_body_as_it_was_sent(scheme: Scheme, body: dict[str, Any]) -> None:
    data = read(scheme, {}, json.dumps(body, ensure_ascii=False).encode("utf-8")).data
    assert {"webhook": data["webhook"], **body} == data


@examples_of(st.text(max_size=300))
def test_any_type_of_a_sender_makes_a_valid_event_name(sent: str) -> None:
    assert find_name_fault(build_event_name("github.{type}", sent)) is None


def test_a_delivery_is_identified_by_its_senders_id() -> None:
    push = read(Scheme.GITHUB, {"x-github-event": "push", "x-github-delivery": "d1"}, {"a": 1})
    assert (push.type, push.id) == ("push", "d1")
    assert push.data["webhook"] == {"hook": "a", "scheme": "github", "type": "push", "id": "d1"}
    paid = read(Scheme.STRIPE, {}, {"id": "evt_1", "type": "invoice.paid"})
    assert (paid.type, paid.id) == ("invoice.paid", "evt_1")
    said = {"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention"}}
    mention = read(Scheme.SLACK, {"x-slack-retry-num": "2"}, said)
    assert (mention.type, mention.id) == ("app_mention", "Ev1")
    assert mention.key == read(Scheme.SLACK, {"x-slack-request-timestamp": "9"}, said).key
    user = read(Scheme.STANDARD, {"webhook-id": "m1"}, {"type": "user.created"})
    assert (user.type, user.id) == ("user.created", "m1")
    assert len({one.key for one in (push, paid, mention, user)}) == 4


def test_a_delivery_without_an_id_or_unique_by_body_is_identified_by_its_body() -> None:
    one, other = ({"x-github-delivery": name} for name in ("d1", "d2"))
    assert read(Scheme.GITHUB, one, {}).key != read(Scheme.GITHUB, other, {}).key
    assert (
        read(Scheme.GITHUB, one, {}, UniqueBy.BODY).key == read(Scheme.GITHUB, other, {}, UniqueBy.BODY).key
    )
    assert read(Scheme.GITHUB, {}, {}).key != read(Scheme.GITHUB, {}, {"a": 1}).key
    command = urlencode({"command": "/deploy", "text": "now"}).encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    first, second = (read(Scheme.SLACK, {**form, "x-slack-request-timestamp": at}, command) for at in "12")
    assert first.key != second.key
    assert first.key == read(Scheme.SLACK, {**form, "x-slack-request-timestamp": "1"}, command).key


def test_slack_sends_forms_and_questions() -> None:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    command = read(Scheme.SLACK, form, urlencode({"command": "/deploy", "text": ""}).encode())
    assert (command.type, command.data["command"], command.data["text"]) == ("command", "/deploy", "")
    action = {"type": "block_actions", "actions": [{"value": "é"}]}
    pressed = read(Scheme.SLACK, form, urlencode({"payload": json.dumps(action)}).encode())
    assert (pressed.type, pressed.data["actions"]) == ("block_actions", [{"value": "é"}])
    asked = read(Scheme.SLACK, {}, {"type": "url_verification", "challenge": "3eZb"})
    assert asked.challenge == "3eZb"
    assert read(Scheme.SLACK, form, b"ssl_check=1&token=x").is_probe
    for broken in (b"payload=%7B", b"a=%ff", b"&".join([b"a=1"] * 300)):
        with pytest.raises(BodyNotJson):
            read(Scheme.SLACK, form, broken)
    with pytest.raises(ContentTypeUnsupported):
        read(Scheme.GITHUB, form, b"payload=%7B%7D")


@each_case("body", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(BodyNotJson):
        read(Scheme.STANDARD, {}, body)


def test_a_body_that_is_no_object_is_the_body_of_the_event() -> None:
    assert read(Scheme.STANDARD, {}, [1, 2]).data["body"] == [1, 2]


@each_case("scheme", Scheme)
def test_secrets_are_generated_or_the_senders(scheme: Scheme) -> None:
    if scheme in (Scheme.STRIPE, Scheme.SLACK):
        with pytest.raises(HookInvalid, match="is required"):
            generate_secret(scheme)
    else:
        assert check_secret(scheme, generate_secret(scheme)) != generate_secret(scheme)
    for wrong in (
        "",
        "short",
        "whsec_=",
        "x" * 257,
        "a secret with ünicode in it",
        "with a\nline break in it",
    ):
        with pytest.raises(HookInvalid) as caught:
            check_secret(scheme, wrong)
        assert not wrong or wrong not in caught.value.message


@each_case(
    ("fields", "path"),
    [
        ({"name": "GitHub"}, "name"),
        ({"name": "a/b"}, "name"),
        ({"event_name": "{type}"}, "event_name"),
        ({"event_name": "job.{type}"}, "event_name"),
        ({"event_name": "a {type}"}, "event_name"),
        ({"event_name": "a" * 160 + "{type}"}, "event_name"),
        ({"tolerance_seconds": 0}, "tolerance_seconds"),
        ({"tolerance_seconds": 3601}, "tolerance_seconds"),
    ],
)
def test_an_invalid_hook_names_its_fault(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(HookInvalid) as caught:
        check_hook(**{"name": "a", "event_name": "a.{type}", "tolerance_seconds": 300, **fields})
    assert [fault.path for fault in caught.value.faults] == [path]
