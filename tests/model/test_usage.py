"""Which hours a question is about, and in which step each of them is."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.errors import InvalidInput
from fairlead.model.spreadsheet import format_csv
from fairlead.model.usage import HOUR, MOST_STEPS, By, Period, UsageFigures, period, sum_usage
from tests.tables import each_case

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ZONES = [
    ZoneInfo(name) for name in ("UTC", "Europe/Paris", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia")
]


def of(by: By, since: str | None = None, until: str | None = None, where: str = "UTC") -> Period:
    def moment(text: str | None) -> datetime | None:
        return None if text is None else datetime.fromisoformat(text)

    return period(by=by, where=ZoneInfo(where), now=NOW, since=moment(since), until=moment(until))


@each_case(("by", "steps"), [(By.HOUR, 25), (By.DAY, 31), (By.MONTH, 13)])
def test_nobody_has_to_name_a_time(by: By, steps: int) -> None:
    found = of(by)

    assert found.until == datetime(2026, 3, 1, 13, tzinfo=UTC)  # with the hour that is not over
    assert len(found.starts) == steps
    assert found.since == found.starts[0]  # and the first step is whole


def test_hours_belong_to_the_step_they_begin_in_on_the_clocks_of_the_zone() -> None:
    days = of(By.DAY, "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00", "Europe/Paris")
    assert [start.isoformat() for start in days.starts] == [
        "2026-03-28T00:00:00+01:00",
        "2026-03-29T00:00:00+01:00",  # twenty-three hours long
        "2026-03-30T00:00:00+02:00",
    ]
    twice = of(By.HOUR, "2026-10-25T02:00:00+02:00", "2026-10-25T04:00:00+01:00", "Europe/Paris")
    assert [start.isoformat()[11:] for start in twice.starts] == [
        "02:00:00+02:00",
        "02:00:00+01:00",
        "03:00:00+01:00",
    ]
    months = of(By.MONTH, "2025-11-15T10:20:00Z", "2026-02-01T00:00:00Z")
    assert [start.isoformat()[:10] for start in months.starts] == ["2025-11-01", "2025-12-01", "2026-01-01"]
    assert months.since == datetime(2025, 11, 15, 11, tzinfo=UTC)  # an hour that began before is not told


@settings(max_examples=60)
@given(
    st.sampled_from(list(By)),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2010, 1, 1), datetime(2030, 1, 1), timezones=st.sampled_from(ZONES)),
    st.integers(1, 900 * 3600),
)
def test_steps_follow_each_other_and_hold_all_hours_there_are(
    by: By, where: ZoneInfo, since: datetime, seconds: int
) -> None:
    until = since.astimezone(UTC) + timedelta(seconds=seconds)
    found = period(by=by, where=where, now=NOW, since=since, until=until)

    assert since.astimezone(UTC) <= found.since < since.astimezone(UTC) + HOUR
    assert found.since <= found.until
    at = [start.timestamp() for start in found.starts]
    assert all(sooner < later for sooner, later in pairwise(at))
    assert not at or at[0] <= found.since.timestamp()
    assert at or found.since == found.until
    assert not at or at[-1] < found.until.timestamp()


@each_case(
    ("since", "until"),
    [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("2026-03-02T00:00:00Z", None),
        ("2026-03-01T00:00:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("2026-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00"),
        ("2024-01-01T00:00:00Z", "2026-03-01T00:00:00Z"),
    ],
)
def test_no_time_or_too_much_of_it_is_refused(since: str, until: str | None) -> None:
    with pytest.raises(InvalidInput) as refusal:
        of(By.HOUR, since, until)
    assert refusal.value.faults[0].path in ("from", "to")


def test_as_many_steps_as_are_admitted_are_told() -> None:
    since = NOW - MOST_STEPS * HOUR
    assert len(of(By.HOUR, since.isoformat()).starts) == MOST_STEPS
    with pytest.raises(InvalidInput, match="longer steps"):
        of(By.HOUR, (since - HOUR).isoformat())


def test_a_total_is_the_sum_of_every_figure() -> None:
    one = UsageFigures(runs=1, failed=1, run_ms=5, queue_ms=6, cost_cents=7)
    assert sum_usage([]) == UsageFigures()
    assert sum_usage([one, one, UsageFigures(runs=1, released=1)]) == UsageFigures(
        runs=3, failed=2, released=1, run_ms=10, queue_ms=12, cost_cents=14
    )


def test_a_table_holds_no_formulas_and_keeps_its_cells_apart() -> None:
    keys = ["=1+1", "+a", "-b", "@c", "\td", "\re", " =f", "\uff1dg", 'a "b", c', "fine", "a=1"]
    text = format_csv(("key", "n"), [(key, -1) for key in keys])

    assert text.split("\r\n")[0] == "key,n"
    assert [line.rsplit(",", 1) for line in text.split("\r\n")[1:-1]] == [
        ["'=1+1", "-1"],
        ["'+a", "-1"],
        ["'-b", "-1"],
        ["'@c", "-1"],
        ["'\td", "-1"],
        ['"\'\re"', "-1"],
        ["' =f", "-1"],
        ["'\uff1dg", "-1"],
        ['"a ""b"", c"', "-1"],
        ["fine", "-1"],
        ["a=1", "-1"],
    ]
