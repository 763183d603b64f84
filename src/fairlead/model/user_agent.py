"""What a browser says about itself, for a list of sessions. It is a claim, never a proof."""

from fairlead.model.payload import find_storage_flaw

LONGEST_USER_AGENT = 300
# The first name that occurs wins: most browsers also name those that they descend from.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-httpx", "Python"),
    ("python-requests/", "Python"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
UNKNOWN = "Unknown browser"


def clean_user_agent(text: str | None) -> str | None:
    """The header User-Agent as it is stored: printable and cut; None if nothing is left."""
    kept = "".join(one for one in (text or "")[: 4 * LONGEST_USER_AGENT] if one.isprintable())
    kept = kept.strip()[:LONGEST_USER_AGENT]
    return None if not kept or find_storage_flaw(kept) else kept


def describe_user_agent(text: str | None) -> str:
    """The browser and its system, such as `Firefox on Linux`; the first word of the text if they are not known."""
    if not text:
        return UNKNOWN
    browser = next((name for mark, name in _BROWSERS if mark in text), None)
    if browser is None:
        return text.split("/")[0].split()[0][:40] if text.split("/")[0].split() else UNKNOWN
    system = next((name for mark, name in _SYSTEMS if mark in text), None)
    return browser if system is None else f"{browser} on {system}"
