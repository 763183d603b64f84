"""Errors folded to kinds."""

from fairlead.model.error_groups import LONGEST_PATTERN, LONGEST_SAMPLE, NO_ERROR, build_sample, pattern
from tests.tables import each_case


@each_case(
    ("error", "folded"),
    [
        ("TimeoutError: gave up after 30.5 s", "TimeoutError: gave up after <n> s"),
        ("KeyError: order 0b0b6f9d-5dbb-46c9-bfe1-ff6e4e469e0f is gone", "KeyError: order <id> is gone"),
        ("OSError: at 0x7f3a91", "OSError: at <n>"),
        ("Bad: 9f86d081884c7d659a2feaa0c55ad015 differs", "Bad: <id> differs"),
        ("Bad: first line\nsecond line 2", "Bad: first line"),
        ("\n  Bad: 1,234 rows \n", "Bad: <n> rows"),
        ("ValueError: effaced facade", "ValueError: effaced facade"),
        (None, NO_ERROR),
        ("  ", NO_ERROR),
    ],
)
def test_what_differs_from_job_to_job_is_folded(error: str | None, folded: str) -> None:
    assert pattern(error) == folded


def test_a_long_line_is_cut() -> None:
    assert len(pattern("x" * 5000)) == LONGEST_PATTERN


def test_a_sample_has_the_traceback_once() -> None:
    assert build_sample("E: x", {"traceback": "  File y\n"}) == "E: x\n\nFile y"
    assert build_sample("E: x\n  File y", {"traceback": "File y"}) == "E: x\n  File y"
    assert build_sample(None, ["odd"]) == NO_ERROR
    assert len(build_sample("x" * 90_000, None)) == LONGEST_SAMPLE
