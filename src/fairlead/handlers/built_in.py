"""Fairlead's built-in functions, if they are configured."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fairlead.settings import Settings

# A function and its job options.
Builtin = tuple[Callable[..., Any], Mapping[str, Any]]


def load_builtins(settings: Settings, document: Mapping[str, Any]) -> Iterator[Builtin]:
    """The built-in functions that the settings and a parsed fairlead.toml enable; raises SettingInvalid if one cannot run."""
    # imported only if enabled: both need an HTTP client, and most workers serve neither
    if settings.http_requests:
        from fairlead.handlers import built_in_http, http  # noqa: PLC0415

        yield built_in_http.build_http_requests(settings, document).request, http.OPTIONS
    if "email" in document:
        from fairlead.handlers import built_in_email, email  # noqa: PLC0415

        if (emails := built_in_email.build_emails(document)) is not None:
            yield emails.send, email.OPTIONS
