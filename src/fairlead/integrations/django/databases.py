"""Django's databases, as Fairlead opens them."""

from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

# Options of Django's PostgreSQL backend, or of the driver's Python face, that libpq does not know.
_NOT_LIBPQ = frozenset(
    {
        "assume_role",
        "autocommit",
        "context",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "row_factory",
        "server_side_binding",
    }
)


def build_url(alias: str) -> str:
    """The URL of a database of settings.DATABASES; while tests run, of its test database."""
    given = connections[alias].settings_dict
    options = given.get("OPTIONS") or {}
    parameters: dict[str, Any] = {
        name: value for name, value in options.items() if name not in _NOT_LIBPQ and value is not None
    }
    if role := options.get("assume_role"):
        parameters["options"] = f"{parameters.get('options', '')} -c role={role}".strip()
    parameters |= {name.lower(): given[name] for name in ("HOST", "PORT") if given.get(name)}
    user, password = (quote(str(given.get(name) or ""), safe="") for name in ("USER", "PASSWORD"))
    account = f"{user}{f':{password}' if password else ''}@" if user else ""
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"postgresql://{account}/{quote(str(given.get('NAME') or ''), safe='')}{query}"
