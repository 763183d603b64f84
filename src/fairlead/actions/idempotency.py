"""Stored responses of requests with an Idempotency-Key. The create that they repeat checks the permission."""

from fairlead.store.idempotency import store_response, take_key

__all__ = ["store_response", "take_key"]
