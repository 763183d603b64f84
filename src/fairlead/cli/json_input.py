"""JSON from arguments, options and files."""

from typing import Any

import msgspec

from fairlead.errors import InvalidInput


def read_json(text: str | bytes, what: str = "payload") -> Any:
    """Decode JSON from an argument or from stdin; raises InvalidInput."""
    try:
        return msgspec.json.decode(text)
    # invalid UTF-8 in an argument becomes surrogates, which cannot be encoded
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f'The {what} is not JSON: {error}. Write it as \'{{"name": "value"}}\'.'
        ) from error
