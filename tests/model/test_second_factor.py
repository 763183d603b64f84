"""Codes of the second factor: RFC 6238, one step of drift, each step once; recovery codes."""

import base64
from uuid import uuid4

import pyotp

from fairlead.model.second_factor import (
    RECOVERY_CODES,
    find_step,
    generate_key,
    generate_recovery_codes,
    hash_recovery_code,
    is_totp_code,
    normalise_code,
    write_uri,
)
from tests.tables import each_case

# RFC 6238, appendix B, SHA-1: the last six of its eight digits
RFC_KEY = base64.b32encode(b"12345678901234567890").decode()
RFC_CODES = {
    59: "287082",
    1111111109: "081804",
    1111111111: "050471",
    1234567890: "005924",
    2000000000: "279037",
}
NOW = 58_000_000


@each_case(("at", "code"), RFC_CODES.items())
def test_codes_are_those_of_the_standard(at: int, code: str) -> None:
    assert find_step(RFC_KEY, code, now=at // 30, last=None) == at // 30


@each_case(("offset", "accepted"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_a_clock_may_be_one_step_off(offset: int, accepted: bool) -> None:  # noqa: FBT001
    key = generate_key()
    code = pyotp.HOTP(key).at(NOW + offset)

    assert find_step(key, code, now=NOW, last=None) == (NOW + offset if accepted else None)


def test_neither_the_last_step_nor_an_earlier_one_is_accepted_again() -> None:
    key = generate_key()
    codes = {step: pyotp.HOTP(key).at(step) for step in (NOW - 1, NOW, NOW + 1)}

    assert find_step(key, codes[NOW - 1], now=NOW, last=NOW) is None
    assert find_step(key, codes[NOW], now=NOW, last=NOW) is None
    assert find_step(key, codes[NOW + 1], now=NOW, last=NOW) == NOW + 1


@each_case("code", ["", "12345", "1234567", "٢٨٧٠٨٢", "28708é", "\udcff" * 6])
def test_other_texts_are_no_codes(code: str) -> None:
    assert find_step(RFC_KEY, code, now=1, last=None) is None
    assert not is_totp_code(code)


def test_codes_are_read_as_people_type_them() -> None:
    assert normalise_code(" 287 082\n") == "287082"
    user_id = uuid4()
    code = generate_recovery_codes()[0]
    typed = code.upper().replace("-", " ")
    assert hash_recovery_code(user_id, typed) == hash_recovery_code(user_id, code)
    assert hash_recovery_code(uuid4(), code) != hash_recovery_code(user_id, code)


def test_recovery_codes_are_random_and_no_codes_of_an_app() -> None:
    codes = generate_recovery_codes()

    assert len({normalise_code(code) for code in codes}) == RECOVERY_CODES == 10
    assert all(len(normalise_code(code)) == 16 and not is_totp_code(normalise_code(code)) for code in codes)


def test_the_uri_is_what_apps_read() -> None:
    parsed = pyotp.parse_uri(write_uri(RFC_KEY, "ada@example.com"))

    assert isinstance(parsed, pyotp.TOTP)
    assert (parsed.name, parsed.issuer, parsed.secret) == ("ada@example.com", "Fairlead", RFC_KEY)
    assert (parsed.interval, parsed.digits, parsed.digest().name) == (30, 6, "sha1")
