"""Webhook signatures, by https://www.standardwebhooks.com."""

import base64
import binascii
import hashlib
import hmac

from fairlead.model.template.path import Flaw

PREFIX = "whsec_"


def decode_key(secret: str) -> bytes:
    """The key in a secret such as whsec_MfKQ…, or a Flaw that never contains the secret."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise Flaw(f"must be {PREFIX} followed by 24 to 64 bytes in base64")
    return key


def sign_webhook(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove to a receiver the sender, the time and the content of a message."""
    content = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }
