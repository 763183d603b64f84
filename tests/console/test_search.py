"""The search box: what its words mean."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fairlead.actions.jobs import JobFilter
from fairlead.errors import InvalidInput
from fairlead.model.job import JobStatus, Source, WaitingFor
from fairlead.server.console.search import QUALIFIERS, read_search, replace_word, split_words
from tests.tables import each_case

NOW = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def read(text: str) -> dict[str, Any]:
    return read_search(text, now=NOW, zone=BERLIN)


def berlin(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


@each_case(
    ("text", "expected"),
    [
        ("", {}),
        ("ada", {"q": "ada"}),
        ('"two words" three', {"q": "two words three"}),
        ("status:failed,dead_letter", {"status": [JobStatus.FAILED, JobStatus.DEAD_LETTER]}),
        ('status:"dead letter"', {"status": [JobStatus.DEAD_LETTER]}),
        ("STATUS:Retrying", {"waiting_for": WaitingFor.RETRYING}),
        ("source:event", {"source": Source.EVENT}),
        ("definition:mail.send ada", {"definition_key": "mail.send", "q": "ada"}),
        ('error:"timed out"', {"error": "timed out"}),
        ("payload.to:*@x.org payload.Customer.id:42", {"payload": {"to": "*@x.org", "Customer.id": "42"}}),
        (
            'payload:{"a": {"b": "c d"}, "e": [1]} status:failed x',
            {"payload_contains": {"a": {"b": "c d"}, "e": [1]}, "status": [JobStatus.FAILED], "q": "x"},
        ),
        ('tag:eu tag:"night ly" TAG:eu', {"tags": ["eu", "night ly"]}),
        ("tag:a,b", {"tags": ["a", "b"]}),
        ("key:a:b", {"dedupe_key": "a:b"}),
        ('"http://x"', {"q": "http://x"}),
        ("duration:>5s", {"duration_over": 5.0}),
        ("duration:>=1.5m", {"duration_over": 90.0}),
        ("duration:<100ms", {"duration_under": 0.1}),
        ("created:>12:00", {"created_after": berlin(2026, 11, 16, 12)}),
        ("created:<9:05", {"created_before": berlin(2026, 11, 16, 9, 5)}),
        ("created:today", {"created_after": berlin(2026, 11, 16), "created_before": berlin(2026, 11, 17)}),
        (
            "created:2h",
            {"created_after": berlin(2026, 11, 16, 13, 30), "created_before": berlin(2026, 11, 16, 15, 30)},
        ),
        (
            "created:2026-11-15",
            {"created_after": berlin(2026, 11, 15), "created_before": berlin(2026, 11, 16)},
        ),
        (
            "created:2026-11-01..2026-11-03",
            {"created_after": berlin(2026, 11, 1), "created_before": berlin(2026, 11, 4)},
        ),
        ("created:>2026-11-16T10:00Z", {"created_after": datetime(2026, 11, 16, 10, tzinfo=UTC)}),
    ],
)
def test_a_search_is_read(text: str, expected: dict[str, Any]) -> None:
    assert read(text) == expected


@each_case(
    ("text", "told"),
    [
        ("tenants:acme", "There is no qualifier tenants:"),
        ("status:gone", "There is no status 'gone'"),
        ("status:retrying,failed", "stands alone"),
        ("created:soon", "is not a time"),
        ("created:>2026-13-01", "is not a time"),
        ("duration:5s", "is not a length"),
        ("duration:>long", "is not a length"),
        ("payload.:1", "There is no qualifier payload.:"),
        ("payload:{order", "is not JSON"),
    ],
)
def test_a_search_that_cannot_be_understood_says_what_to_write(text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read(text)


def test_every_qualifier_is_read() -> None:
    values = {"status": "failed", "source": "event", "created": "today", "duration": ">1s"}
    values["payload"] = '{"a": 1}'
    known = {*JobFilter.__struct_fields__, "host"}
    for name in QUALIFIERS:
        written = "payload.a" if name.endswith(".") else name
        assert read(f"{written}:{values.get(name, 'x')}").keys() <= known


def test_a_word_is_replaced() -> None:
    assert replace_word("status:failed ada", "status", "queued") == "ada status:queued"
    assert replace_word('ada error:"a b" status:failed', "status", None) == 'ada error:"a b"'
    assert replace_word("", "definition", "with space") == 'definition:"with space"'
    assert [word.value for word in split_words('a "b c" d:"e f"')] == ["a", "b c", "e f"]
