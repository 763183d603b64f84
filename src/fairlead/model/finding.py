"""The result of a system check, with advice."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """The verdict of a check; `level` is its number in the metric."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"

    @property
    def level(self) -> int:
        return list(Verdict).index(self)


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: verdict, detail and advice. `value` is the measured number, if there is one."""

    check: str
    verdict: Verdict
    detail: str
    advice: str = ""
    value: float | None = None


def grade_finding(
    check: str, value: float, *, warn: float, fail: float | None, fine: str, detail: str, advice: str
) -> Finding:
    """OK up to `warn`, a warning above it, a failure above `fail` (None: never a failure)."""
    if value <= warn:
        return Finding(check, Verdict.OK, fine, value=value)
    verdict = Verdict.FAIL if fail is not None and value > fail else Verdict.WARN
    return Finding(check, verdict, detail, advice, value)


def merge_findings(cells: Iterable[Iterable[Finding]]) -> list[Finding]:
    """The findings of several cells: of each check the worst."""
    worst: dict[str, Finding] = {}
    for one in (finding for cell in cells for finding in cell):
        known = worst.setdefault(one.check, one)
        if one.verdict.level > known.verdict.level:
            worst[one.check] = one
    return list(worst.values())
