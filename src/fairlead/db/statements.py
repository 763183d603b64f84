"""Split an SQL file into statements. They are sent one by one, so that an error names the statement that failed."""

import re
from collections.abc import Iterator

# comments, strings and dollar-quoted bodies may hold semicolons
_TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|;|[^-'$;]+|.", re.DOTALL)


def split_statements(text: str) -> Iterator[str]:
    """Each statement with the comments before it; comments after the last one are left out."""
    start = 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            yield text[start : token.end()].strip()
            start = token.end()
