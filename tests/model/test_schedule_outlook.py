"""The runs of schedules in a window of time, and the clock changes there."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.schedule.outlook import find_clock_changes, list_first_in_bins, list_next
from fairlead.model.schedule.spec import Every, iterate_instants, parse_cron_schedule

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
BIN = timedelta(minutes=10)


@given(st.integers(7, 100_000), st.integers(0, 86_400))
def test_each_bin_with_a_run_has_its_first_run(seconds: int, late: int) -> None:
    schedule = Every(seconds, NOON - timedelta(seconds=late))
    first: dict[int, datetime] = {}
    for at in iterate_instants(schedule, NOON, NOON + DAY - timedelta.resolution):
        first.setdefault((at - NOON) // BIN, at)

    assert list_first_in_bins(schedule, NOON, NOON + DAY, BIN) == list(first.values())


def test_the_next_runs_end_with_the_window() -> None:
    daily = parse_cron_schedule("0 2 * * *", "UTC")

    assert list_next(daily, NOON, NOON + DAY, 5) == [datetime(2026, 3, 2, 2, tzinfo=UTC)]
    assert len(list_next(parse_cron_schedule("* * * * *", "UTC"), NOON, NOON + DAY, 5)) == 5


def test_clock_changes_are_found_where_they_are() -> None:
    before = datetime(2026, 10, 24, 12, tzinfo=UTC)

    [change] = find_clock_changes("Europe/Berlin", before, before + DAY)

    assert change.at == datetime(2026, 10, 25, 1, tzinfo=UTC)
    assert change.before - change.after == timedelta(hours=1)
    assert find_clock_changes("Europe/Berlin", before + DAY, before + 2 * DAY) == []
    assert (
        find_clock_changes(
            "UTC", datetime(2026, 12, 31, 12, tzinfo=UTC), datetime(2027, 1, 1, 12, tzinfo=UTC)
        )
        == []
    )
