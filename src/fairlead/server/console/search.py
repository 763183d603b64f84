"""The search box for jobs: words with qualifiers, such as `status:failed definition:report -- Ada`."""

import shlex

import msgspec

QUALIFIERS = ("status", "definition", "host", "source", "key", "correlation")


class Search(msgspec.Struct):
    """A parsed search: values by qualifier, and the other words."""

    by: dict[str, list[str]] = msgspec.field(default_factory=dict)
    words: str = ""

    def one(self, name: str) -> str | None:
        """The last value of a qualifier."""
        return self.by[name][-1] if name in self.by else None


def parse_search(text: str) -> Search:
    """`status:failed,dead_letter "two words"`; an unknown qualifier is an ordinary word."""
    found = Search()
    words = []
    for part in _split_words(text):
        name, colon, value = part.partition(":")
        if colon and value and name.lower() in QUALIFIERS:
            found.by.setdefault(name.lower(), []).extend(one for one in value.split(",") if one)
        else:
            words.append(part)
    found.words = " ".join(words)
    return found


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an unclosed quote
        return text.split()
