"""What is shown of stored payloads has no ciphertext."""

from uuid import uuid4

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlead.keys.sealed import DataKey
from fairlead.model.secrets.redact import MASK
from fairlead.model.secrets.sealed_payload import hide_sealed, seal_values


def test_sealed_values_are_hidden_wherever_they_are() -> None:
    payload = {"a": [{"secret": "x"}, 1, "$sealed"], "secret": {"b": [2]}, "c": {"$sealed": "looks like it"}}
    tenant_id = uuid4()
    key = DataKey(uuid4(), tenant_id, AESGCM(bytes(32)))
    sealed = seal_values(
        payload, ["/a/0/secret", "/secret"], key, tenant_id=tenant_id, definition="d", job_id=uuid4()
    )

    shown = hide_sealed(sealed)

    assert shown == {"a": [{"secret": MASK}, 1, "$sealed"], "secret": MASK, "c": {"$sealed": "looks like it"}}


def test_a_payload_without_sealed_values_is_not_walked_through() -> None:
    payload = {"large": [{}] * 1000, "text": "a $sealed one"}

    assert hide_sealed(payload) is payload
