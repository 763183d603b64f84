"""What a check found, and what to do about it."""

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """How a check came out; `level` orders them for a metric."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"

    @property
    def level(self) -> int:
        return list(Verdict).index(self)


class Finding(msgspec.Struct, frozen=True):
    """One check: its verdict, what was seen, and what to do. `value` is the figure behind it, where there is one."""

    check: str
    verdict: Verdict
    detail: str
    advice: str = ""
    value: float | None = None


def graded(
    check: str, value: float, *, warn: float, fail: float | None, fine: str, detail: str, advice: str
) -> Finding:
    """OK up to `warn`, a warning above it, a failure above `fail` (None: never a failure)."""
    if value <= warn:
        return Finding(check, Verdict.OK, fine, value=value)
    verdict = Verdict.FAIL if fail is not None and value > fail else Verdict.WARN
    return Finding(check, verdict, detail, advice, value)
