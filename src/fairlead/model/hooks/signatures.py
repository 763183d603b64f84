"""Verifies the signature of a delivery, for each scheme. All comparisons take constant time."""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fairlead.model.hooks.hook import Refusal, Scheme
from fairlead.model.messages.webhook import decode_key, sign_webhook

# More signatures in one header are ignored.
MOST_SIGNATURES = 16
LONGEST_TIMESTAMP = 12


class SignedContent(NamedTuple):
    """The signatures of a delivery, what they sign, and when it was sent (None: the scheme has no timestamp)."""

    signatures: Sequence[str]
    sent_at: int | None
    sign: Callable[[str], str]


def verify(
    scheme: Scheme,
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    tolerance_seconds: float,
) -> Refusal | None:
    """None if one of the secrets signed this delivery within the tolerance; otherwise why it is refused."""
    content = _READERS[scheme](headers, body)
    if content is None:
        return Refusal.SIGNATURE_MISSING
    given = [one.encode() for one in content.signatures[:MOST_SIGNATURES]]
    expected = [content.sign(secret).encode() for secret in secrets]
    # compares all, so that the time does not depend on which one matches
    matches = [hmac.compare_digest(one, other) for one in given for other in expected]
    if not any(matches):
        return Refusal.SIGNATURE_WRONG
    if content.sent_at is not None and abs(now - content.sent_at) > tolerance_seconds:
        return Refusal.TOO_OLD
    return None


def _read_standard(headers: Mapping[str, str], body: bytes) -> SignedContent | None:
    message_id, sent_at = headers.get("webhook-id"), _read_timestamp(headers.get("webhook-timestamp"))
    signatures = headers.get("webhook-signature")
    if not message_id or sent_at is None or not signatures:
        return None

    def sign(secret: str) -> str:
        return sign_webhook(decode_key(secret), message_id, sent_at, body)["webhook-signature"]

    return SignedContent(signatures.split(), sent_at, sign)


def _read_github(headers: Mapping[str, str], body: bytes) -> SignedContent | None:
    signature = headers.get("x-hub-signature-256")
    if not signature:
        return None
    return SignedContent([signature], None, lambda secret: f"sha256={_sign_hex(secret, body)}")


def _read_stripe(headers: Mapping[str, str], body: bytes) -> SignedContent | None:
    pairs = [part.strip().partition("=")[::2] for part in headers.get("stripe-signature", "").split(",")]
    sent_at = _read_timestamp(next((value for name, value in pairs if name == "t"), None))
    signatures = [value for name, value in pairs if name == "v1"]
    if sent_at is None or not signatures:
        return None
    return SignedContent(signatures, sent_at, lambda secret: _sign_hex(secret, f"{sent_at}.".encode() + body))


def _read_slack(headers: Mapping[str, str], body: bytes) -> SignedContent | None:
    signature = headers.get("x-slack-signature")
    sent_at = _read_timestamp(headers.get("x-slack-request-timestamp"))
    if not signature or sent_at is None:
        return None
    content = f"v0:{sent_at}:".encode() + body
    return SignedContent([signature], sent_at, lambda secret: f"v0={_sign_hex(secret, content)}")


_READERS = {
    Scheme.STANDARD: _read_standard,
    Scheme.GITHUB: _read_github,
    Scheme.STRIPE: _read_stripe,
    Scheme.SLACK: _read_slack,
}


def _sign_hex(secret: str, content: bytes) -> str:
    return hmac.digest(secret.encode(), content, hashlib.sha256).hex()


def _read_timestamp(text: str | None) -> int | None:
    """Seconds since 1970 in their only decimal form, since the signature covers the text."""
    if not text or len(text) > LONGEST_TIMESTAMP or not (text.isascii() and text.isdigit()):
        return None
    return int(text) if str(int(text)) == text else None
