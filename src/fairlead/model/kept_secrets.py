"""Secrets that an edit left as they were shown: they are put back, and go where they went before."""

from collections.abc import Mapping
from typing import Any

from fairlead.errors import Fault, SecretsRequired
from fairlead.model import http_call
from fairlead.model.path import Flaw
from fairlead.model.redact import restored


def restored_for(definition_key: str, edited: Any, stored: Any, shown: Any) -> Any:
    """As `restored`, of a payload or its template; refused where a request would take the secrets to another server.

    Who edits has not seen them: sent to a server of their own, they would.
    """
    payload = restored(edited, stored, shown)
    if (
        definition_key == http_call.KEY
        and payload != edited
        and _destination(payload) != _destination(stored)
    ):
        raise SecretsRequired(
            "The secrets were given for the server of the old url, and are not sent to another: give them anew, "
            "in place of what is shown as [redacted].",
            [Fault("/url", "leads to another server than the secrets were given for")],
        )
    return payload


def _destination(payload: Any) -> Any:
    """The origin of a request's url; of one that is yet to be filled in, or cannot be, the url itself."""
    url = payload.get("url") if isinstance(payload, Mapping) else payload
    try:
        return http_call.target_of(url).origin if isinstance(url, str) else url
    except Flaw:
        return url
