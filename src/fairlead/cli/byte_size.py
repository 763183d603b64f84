"""A number of bytes on the command line."""

import re

import click

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


class ByteSize(click.ParamType[int]):
    """A size such as 512M, 1.5GB or 800000000; units are powers of 1024."""

    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
        if size < 1:
            self.fail(
                f"{value!r} is not a size. Use a number of bytes, or one such as 512M or 1.5G.", param, ctx
            )
        return size


def describe_size(size: int) -> str:
    """A size in megabytes."""
    return f"{size / _UNITS['m']:,.0f} MB"
