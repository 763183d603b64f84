"""Deliveries as their senders sign them, written from the senders' documentation and not with our own code."""

import base64
import hashlib
import hmac
import time

from fairlead.model.hooks.hook import Scheme


def signed(
    scheme: Scheme,
    secret: str,
    body: bytes,
    *,
    message_id: str = "msg_1",
    sent_at: float | None = None,
    event: str = "push",
    content_type: str = "application/json",
) -> dict[str, str]:
    """The headers of a delivery."""
    moment = str(int(time.time() if sent_at is None else sent_at))
    more = {"content-type": content_type}
    match scheme:
        case Scheme.STANDARD:
            key = base64.b64decode(secret.removeprefix("whsec_"))
            digest = hmac.new(key, f"{message_id}.{moment}.".encode() + body, hashlib.sha256).digest()
            signature = f"v1,{base64.b64encode(digest).decode()}"
            return {
                "webhook-id": message_id,
                "webhook-timestamp": moment,
                "webhook-signature": signature,
                **more,
            }
        case Scheme.GITHUB:
            return {
                "x-hub-signature-256": f"sha256={_hex(secret, body)}",
                "x-github-event": event,
                "x-github-delivery": message_id,
                **more,
            }
        case Scheme.STRIPE:
            return {
                "stripe-signature": f"t={moment},v0=00,v1={_hex(secret, f'{moment}.'.encode() + body)}",
                **more,
            }
        case Scheme.SLACK:
            return {
                "x-slack-request-timestamp": moment,
                "x-slack-signature": f"v0={_hex(secret, f'v0:{moment}:'.encode() + body)}",
                **more,
            }


def _hex(secret: str, content: bytes) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
