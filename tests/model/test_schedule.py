from datetime import UTC, datetime, timedelta, timezone
from itertools import islice

import pytest
from hypothesis import given, settings, strategies

from fairlead.errors import CronInvalid, ScheduleInvalid, TimezoneUnknown
from fairlead.model.request import EARLIEST, LATEST
from fairlead.model.schedule import zone
from fairlead.model.schedule.spec import (
    Cron,
    Every,
    Schedule,
    in_words,
    iterate_instants,
    parse_cron_schedule,
    preview_runs,
)
from tests.tables import each_case

NEW_YORK = "America/New_York"
BERLIN = "Europe/Berlin"
TICK = timedelta.resolution


def at(text: str) -> datetime:
    return datetime.fromisoformat(text + "Z")


def runs(expr: str, where: str, after: str, n: int) -> list[str]:
    """The next runs as clocks show them."""
    found = islice(parse_cron_schedule(expr, where).runs(at(after)), n)
    return [f"{one.astimezone(zone.load_zone(where)):%d %H:%M %z}" for one in found]


# What is taken and what is refused


@each_case(
    ("written", "read"),
    [
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("0 0 2 * * *", "0 2 * * *"),
        ("  30\t2 * *  mon-fri\n", "30 2 * * mon-fri"),
        ("0 0 L * 5L,mon#2", "0 0 L * 5L,mon#2"),
    ],
)
def test_an_expression_is_kept_as_five_fields(written: str, read: str) -> None:
    assert parse_cron_schedule(written, "UTC") == Cron(read, "UTC")
    assert Cron(written, "UTC").next_after(EARLIEST) == Cron(read, "UTC").next_after(EARLIEST)


@each_case(
    ("expr", "advice"),
    [
        ("@reboot", "@hourly"),
        ("1 0 2 * * *", "use an interval"),
        ("*/5 0 2 * * *", "use an interval"),
        ("", "has 0 fields: it must have five fields"),
        ("5", "has 1 field: it must have five fields"),
        ("* * * *", "has 4 fields: it must have five fields"),
        ("* * * * * * *", "has 7 fields: it must have five fields"),
        ("15 10 ? * *", r"has a \?, which is not supported: write \* for any day"),
        ("0 15 10 ? * *", r"write \* for any day"),
        ("ſun * * * *", "five fields"),
        ("\x00 * * * *", "five fields"),
        ("*," * 200 + "* * * * *", "five fields"),
        ("60 * * * *", "0 to 59"),
        ("*/0 * * * *", "0 to 59"),
        ("5-5/0 * * * *", "0 to 59"),
        ("0 24 * * *", "0 to 23"),
        ("0 0 32 * *", "1 to 31"),
        ("0 0 1 13 *", "JAN to DEC"),
        ("0 0 * * FRI-SUN", "SUN to SAT"),
        ("0 0 30 2 *", "never runs"),
        ("0 0 31 2,4,6,9,11 *", "never runs"),
        ("0 0 */30 2 MON#2", "never runs"),
    ],
)
def test_a_wrong_or_impossible_expression_is_refused_with_advice(expr: str, advice: str) -> None:
    with pytest.raises(CronInvalid, match=advice) as refused:
        parse_cron_schedule(expr, "UTC")
    assert refused.value.faults[0].path == "cron_expr"
    with pytest.raises(CronInvalid):
        Cron(expr, "UTC").next_after(EARLIEST)


@each_case(
    ("name", "hint"),
    [
        ("europe/paris", "mean Europe/Paris"),
        ("New_York", "mean America/New_York"),
        ("", "IANA"),
        ("localtime", "IANA"),
        ("../../etc/localtime", "IANA"),
        ("America", "IANA"),
        ("\x00", "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(TimezoneUnknown, match=hint) as refused:
        parse_cron_schedule("@daily", name)
    assert refused.value.faults[0].path == "timezone"


@each_case(
    ("seconds", "start_at", "path"),
    [
        (-1, EARLIEST, "every_seconds"),
        (366 * 86_400 + 1, EARLIEST, "every_seconds"),
        (1.5, EARLIEST, "every_seconds"),
        (True, EARLIEST, "every_seconds"),
        (60, datetime(2026, 1, 1), "start_at"),
        (60, EARLIEST - TICK, "start_at"),
        (60, LATEST, "start_at"),
    ],
)
def test_an_interval_out_of_range_is_refused(seconds: int, start_at: datetime, path: str) -> None:
    with pytest.raises(ScheduleInvalid, match=path) as refused:
        Every(seconds, start_at)
    assert refused.value.faults[0].path == path


# Clocks that change


def test_a_time_that_does_not_exist_runs_once_when_clocks_have_jumped() -> None:
    assert runs("30 2 * * *", NEW_YORK, "2026-03-07T12:00", 2) == ["08 03:00 -0400", "09 02:30 -0400"]
    assert runs("0,30 2 * * *", NEW_YORK, "2026-03-07T12:00", 2) == ["08 03:00 -0400", "09 02:00 -0400"]
    assert runs("0 2-4 * * *", NEW_YORK, "2026-03-07T12:00", 3) == [
        "08 03:00 -0400", "08 04:00 -0400", "09 02:00 -0400",
    ]  # fmt: skip


def test_midnight_that_does_not_exist_runs_at_one() -> None:
    assert runs("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00", 2) == ["24 01:00 +0300", "25 00:00 +0300"]


def test_a_gap_of_half_an_hour_ends_at_the_half_hour() -> None:
    assert runs("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", 1) == ["04 02:30 +1100"]


def test_a_day_that_does_not_exist_runs_once_as_the_next_begins() -> None:
    assert runs("0 2,9 * * *", "Pacific/Apia", "2011-12-29T20:00", 2) == ["31 00:00 +1400", "31 02:00 +1400"]


@pytest.mark.parametrize("after", ["2026-10-31T12:00", "2026-11-01T04:59:59"])
def test_a_time_that_happens_twice_runs_the_first_time(after: str) -> None:
    assert runs("0,30 1 * * *", NEW_YORK, after, 3) == ["01 01:00 -0400", "01 01:30 -0400", "02 01:00 -0500"]


def test_within_the_repeated_hour_nothing_runs_again() -> None:
    assert runs("0,30 1 * * *", NEW_YORK, "2026-11-01T06:00", 1) == ["02 01:00 -0500"]
    assert runs("0,30 1 * * *", NEW_YORK, "2026-11-01T06:29:59", 1) == ["02 01:00 -0500"]


def test_what_reads_as_an_interval_follows_elapsed_time() -> None:
    assert runs("0 * * * *", NEW_YORK, "2026-11-01T04:30", 3) == [
        "01 01:00 -0400", "01 01:00 -0500", "01 02:00 -0500",
    ]  # fmt: skip
    assert runs("0 */2 * * *", NEW_YORK, "2026-03-08T04:30", 2) == ["08 00:00 -0500", "08 04:00 -0400"]
    assert runs("*/20 2 * * *", BERLIN, "2026-10-24T22:00", 7) == [
        "25 02:00 +0200", "25 02:20 +0200", "25 02:40 +0200",
        "25 02:00 +0100", "25 02:20 +0100", "25 02:40 +0100", "26 02:00 +0100",
    ]  # fmt: skip
    assert runs("*/20 2 * * *", BERLIN, "2026-03-28T22:00", 1) == ["30 02:00 +0200"]


def test_hours_go_on_through_a_change_of_half_an_hour() -> None:
    assert runs("0 * * * *", "Australia/Lord_Howe", "2026-10-03T14:00", 3) == [
        "04 01:00 +1030", "04 03:00 +1100", "04 04:00 +1100",
    ]  # fmt: skip
    assert runs("45 * * * *", "Australia/Lord_Howe", "2026-04-04T13:50", 3) == [
        "05 01:45 +1100", "05 01:45 +1030", "05 02:45 +1030",
    ]  # fmt: skip


# Fields


def test_day_of_month_and_day_of_week_together_are_either() -> None:
    assert [one[:2] for one in runs("0 0 13 * FRI", "UTC", "2026-01-01T00:00", 4)] == ["02", "09", "13", "16"]


def test_a_day_field_that_begins_with_a_star_must_hold_too() -> None:
    assert [one[:2] for one in runs("0 0 */2 * MON", "UTC", "2026-01-01T00:00", 2)] == ["05", "19"]


@pytest.mark.parametrize("field", ["5-5/2", "05-5/2"])
def test_a_step_in_a_span_of_one_is_that_one(field: str) -> None:
    assert runs(f"0 {field} * * *", "UTC", "2026-01-01T00:00", 2) == ["01 05:00 +0000", "02 05:00 +0000"]
    assert runs("0 0 * * MON-1/2", "UTC", "2026-01-01T00:00", 2) == ["05 00:00 +0000", "12 00:00 +0000"]


def test_a_rare_day_is_waited_for_for_decades() -> None:
    assert parse_cron_schedule("0 0 29 2 */7", "UTC").next_after(at("2032-03-01T00:00")) == at(
        "2060-02-29T00:00"
    )
    assert parse_cron_schedule("* * 29 2 */7", BERLIN).next_after(at("2088-03-01T00:00")) == at(
        "2128-02-28T23:00"
    )


def test_no_schedule_runs_past_the_latest_time() -> None:
    for schedule in (
        parse_cron_schedule("@daily", BERLIN),
        parse_cron_schedule("* * * * *", BERLIN),
        Every(1, EARLIEST),
    ):
        last = schedule.next_after(LATEST - timedelta(days=2))
        assert last is not None
        assert last < LATEST
        for after in (LATEST - TICK, LATEST, datetime.max.replace(tzinfo=timezone(timedelta(hours=-9)))):
            assert schedule.next_after(after) is None
        assert schedule.next_after(datetime.min.replace(tzinfo=UTC)) is not None


# Intervals


def test_an_interval_of_nothing_runs_once() -> None:
    once = Every(0, at("2026-01-01T00:00"))

    assert once.next_after(at("2026-01-01T00:00") - TICK) == at("2026-01-01T00:00")
    assert once.next_after(at("2026-01-01T00:00")) is None
    assert list(once.runs(EARLIEST)) == [at("2026-01-01T00:00")]


MOMENTS = strategies.datetimes(
    EARLIEST.replace(tzinfo=None), datetime(2800, 1, 1), timezones=strategies.just(UTC)
)


@given(strategies.integers(1, 366 * 86_400), MOMENTS, MOMENTS)
def test_an_interval_keeps_its_grid_to_the_microsecond(
    seconds: int, start: datetime, after: datetime
) -> None:
    step = timedelta(seconds=seconds)
    following = Every(seconds, start).next_after(after)

    assert following is not None
    assert following.tzinfo is UTC
    assert (following - start) % step == timedelta(0)
    assert following == start if after < start else after < following <= after + step


def test_an_interval_counts_from_its_start_in_whatever_zone_that_was_given() -> None:
    start = datetime(2026, 3, 8, 1, 30, 0, 250_000, zone.load_zone(NEW_YORK))
    assert Every(3600, start).next_after(at("2026-03-08T07:00")) == at("2026-03-08T07:30:00.250000")


def test_instants_leave_out_the_first_bound_and_hold_the_last() -> None:
    for schedule in (parse_cron_schedule("* * * * *", "UTC"), Every(60, EARLIEST)):
        found = list(iterate_instants(schedule, at("2026-01-01T00:00"), at("2026-01-01T00:02")))
        assert found == [at("2026-01-01T00:01"), at("2026-01-01T00:02")]


# Always

FIELDS = strategies.sampled_from(["*", "*/7", "0", "1", "2", "1-3", "2,5", "3-6/2", "1-5/3"])
CRONS = strategies.builds(
    Cron, strategies.tuples(FIELDS, FIELDS, FIELDS.map(lambda day: day if day != "0" else "29"),
                            FIELDS.map(lambda month: month if month != "0" else "12"), FIELDS).map(" ".join),
    strategies.sampled_from(sorted(zone.list_zone_names())),
)  # fmt: skip


@settings(deadline=None)
@given(CRONS, MOMENTS, strategies.floats(0, 1))
def test_runs_go_on_strictly_and_each_is_next_until_it_comes(
    schedule: Cron, after: datetime, part: float
) -> None:
    first, second, third = islice(schedule.runs(after), 3)

    assert after < first < second < third
    assert first.tzinfo is UTC
    assert schedule.next_after(after) == first
    assert schedule.next_after(first) == second
    assert schedule.next_after(second - TICK) == second
    assert schedule.next_after(first + part * (second - first - TICK)) == second


# Shown to people


def notes(schedule: Schedule, after: str, n: int = 3, where: str = "UTC") -> list[str | None]:
    return [run.note for run in preview_runs(schedule, at(after), n, zone=where)]


def test_a_preview_shows_five_runs_in_utc_and_in_local_time() -> None:
    first, *rest = preview_runs(parse_cron_schedule("30 9 * * *", NEW_YORK), at("2026-07-01T00:00"))

    assert len(rest) == 4
    assert (first.at, first.at.tzinfo) == (at("2026-07-01T13:30"), UTC)
    assert first.local.isoformat() == "2026-07-01T09:30:00-04:00"
    assert (first.offset, first.note) == ("UTC-04:00", None)


def test_a_preview_marks_what_changes_of_clocks_do() -> None:
    assert notes(parse_cron_schedule("30 2 * * *", NEW_YORK), "2026-03-07T00:00") == [
        None, "clocks go forward: 02:30 does not exist, runs at 03:00", None,
    ]  # fmt: skip
    assert notes(parse_cron_schedule("0,30 2 * * *", NEW_YORK), "2026-03-08T00:00", 1) == [
        "clocks go forward: 02:00 to 02:30 do not exist, runs once at 03:00"
    ]
    assert notes(parse_cron_schedule("0 9 * * *", "Pacific/Apia"), "2011-12-30T00:00", 1) == [
        "clocks go forward: 2011-12-30 09:00 does not exist, runs at 2011-12-31 00:00"
    ]
    assert notes(parse_cron_schedule("30 1 * * *", NEW_YORK), "2026-10-31T12:00") == [
        "clocks go back: 01:30 happens twice, runs the first time",
        "clocks changed since the run before: UTC-05:00 instead of UTC-04:00",
        None,
    ]
    assert notes(parse_cron_schedule("0 9 * * *", NEW_YORK), "2026-11-01T00:00", 2) == [
        "clocks changed before this run: UTC-05:00 instead of UTC-04:00", None,
    ]  # fmt: skip


def test_a_preview_of_an_interval_is_shown_in_the_zone_that_is_named() -> None:
    schedule = Every(3600, at("2026-03-08T05:30"))

    assert notes(schedule, "2026-03-08T05:00") == [None, None, None]
    assert notes(schedule, "2026-03-08T05:00", where=NEW_YORK) == [
        None, None, "clocks changed since the run before: UTC-04:00 instead of UTC-05:00",
    ]  # fmt: skip
    assert [f"{run.local:%H:%M}" for run in preview_runs(schedule, at("2026-03-08T05:00"), 3, zone=NEW_YORK)] == [
        "00:30", "01:30", "03:30",
    ]  # fmt: skip


def test_a_one_shot_is_previewed_as_one_run() -> None:
    assert len(preview_runs(Every(0, at("2026-01-01T00:00")), EARLIEST)) == 1


@each_case(
    ("expr", "said"),
    [
        ("* * * * *", "every minute"),
        ("*/1 * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */6 * * *", "every 6 hours at minute 0 (UTC)"),
        ("0 2 * * *", "every day at 02:00 (UTC)"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00 (UTC)"),
        ("30 9 * * 1-5", "Monday to Friday at 09:30 (UTC)"),
        ("30 9 * * mon-fri", "Monday to Friday at 09:30 (UTC)"),
        ("@weekly", "every Sunday at 00:00 (UTC)"),
        ("0 0 * * 0,7", "every Sunday at 00:00 (UTC)"),
        ("0 8 * * 1,3,5", "Monday, Wednesday and Friday at 08:00 (UTC)"),
        ("@monthly", "on the 1st of every month at 00:00 (UTC)"),
        ("0 0 2,13,23 * *", "on the 2nd, 13th and 23rd of every month at 00:00 (UTC)"),
        ("0 0 31 * *", "on the 31st of every month that has it at 00:00 (UTC)"),
        ("0 0 L * *", "on the last day of every month at 00:00 (UTC)"),
        ("@yearly", "every year on 1 January at 00:00 (UTC)"),
        ("0 0 31 mar,12 *", "every year on 31 March and 31 December at 00:00 (UTC)"),
        # not so simple: the expression itself
        ("*/7 * * * *", "*/7 * * * * (UTC)"),
        ("0 0 29 2 *", "0 0 29 2 * (UTC)"),
        ("0 0 13 * 5", "0 0 13 * 5 (UTC)"),
        ("0 0 * * 5L", "0 0 * * 5L (UTC)"),
        ("0-10 2 * * *", "0-10 2 * * * (UTC)"),
        ("*/5 2 * * *", "*/5 2 * * * (UTC)"),
        ("0 0 * 6 *", "0 0 * 6 * (UTC)"),
    ],
)
def test_a_cron_schedule_in_words(expr: str, said: str) -> None:
    assert in_words(parse_cron_schedule(expr, "UTC")) == said


@each_case(
    ("seconds", "said"),
    [
        (0, "once at 2026-01-01 00:00:00 UTC"),
        (1, "every second from 2026-01-01 00:00:00 UTC"),
        (30, "every 30 seconds from 2026-01-01 00:00:00 UTC"),
        (5400, "every 90 minutes from 2026-01-01 00:00:00 UTC"),
        (3600, "every hour from 2026-01-01 00:00:00 UTC"),
        (172_800, "every 2 days from 2026-01-01 00:00:00 UTC"),
    ],
)
def test_an_interval_in_words(seconds: int, said: str) -> None:
    assert in_words(Every(seconds, at("2026-01-01T00:00"))) == said
