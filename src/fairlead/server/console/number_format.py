"""Numbers in the format of the reader's language, as the browser names it."""

from typing import Any

import jinja2

# The separator of thousands, by language; English and all others have a comma.
_SEPARATORS = {
    **dict.fromkeys(
        ("de", "es", "it", "nl", "pt", "da", "id", "tr", "el", "hr", "sl", "sr", "ro", "vi"), "."
    ),
    **dict.fromkeys(("fr",), "\u202f"),
    **dict.fromkeys(
        ("bg", "cs", "et", "fi", "hu", "lt", "lv", "nb", "no", "pl", "ru", "sk", "sv", "uk"), "\xa0"
    ),
    **dict.fromkeys(("de-ch", "de-li", "it-ch"), "\u2019"),
    "es-mx": ",",
}


def thousands_separator(accept_language: str) -> str:
    """The separator for the first language of an Accept-Language header, which is the browser's own."""
    first = accept_language.partition(",")[0].partition(";")[0].strip().lower()
    return _SEPARATORS.get(first) or _SEPARATORS.get(first.partition("-")[0], ",")


def format_number(value: float, separator: str, decimals: int = 0) -> str:
    """A number with separated thousands, and with the decimal mark that goes with the separator."""
    text = f"{value:,.{decimals}f}" if decimals else f"{value:,}"
    return text.translate({ord(","): separator, ord("."): decimal_mark(separator)})


def decimal_mark(separator: str) -> str:
    """A point where a comma or an apostrophe separates thousands, otherwise a comma."""
    return "." if separator in (",", "\u2019") else ","


@jinja2.pass_context
def number(context: jinja2.runtime.Context, value: Any, decimals: int = 0) -> str:
    """A number in the reader's format."""
    return format_number(value, str(context.get("separator", ",")), decimals)
