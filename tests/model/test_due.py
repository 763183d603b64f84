"""Which instants are due: against an oracle that walks through all of them."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import UUID

import pytest
from hypothesis import given as holds_for
from hypothesis import settings
from hypothesis import strategies as st
from msgspec import structs

from fairlead.model.schedule.due import MISSED, MOST_MISSED, OVERTAKEN, DueInstants, decide_due
from fairlead.model.schedule.spec import (
    Cron,
    Every,
    Schedule,
    find_fire_time,
    iterate_instants,
    parse_cron_schedule,
)
from fairlead.model.trigger import LONGEST_JITTER, CatchUp
from tests.tables import each_case

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
GRACE = timedelta(seconds=60)
MOST_CALLS = 1_000_000
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)

EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 0 1 * *",
    "15 9-17 * * 1-5",
    "* * * 1 *",
]
schedules: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(
        Every,
        st.one_of(st.integers(60, 600), st.integers(600, 100_000)),
        st.datetimes(datetime(2026, 1, 1), datetime(2026, 6, 1)).map(lambda at: at.replace(tzinfo=UTC)),
    ),
    st.builds(
        parse_cron_schedule,
        st.sampled_from(EXPRESSIONS),
        st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    ),
)
# as far back as the oracle has the patience for
spans = st.one_of(
    st.timedeltas(timedelta(0), timedelta(minutes=5)),
    st.timedeltas(timedelta(0), timedelta(days=2)),
    st.timedeltas(timedelta(0), timedelta(days=5)),
)


def first_after(schedule: Schedule, moment: datetime) -> datetime:
    first = schedule.next_after(moment)
    assert first is not None
    return first


def told(verdict: DueInstants) -> list[datetime]:
    return sorted([*verdict.fire, *(at for at, _ in verdict.skip)])


@settings(deadline=None)  # the oracle takes its time
@holds_for(schedules, spans, st.sampled_from(CatchUp), st.timedeltas(timedelta(0), timedelta(hours=1)))
def test_every_instant_is_fired_or_skipped_or_passed_and_only_once(
    schedule: Schedule, absence: timedelta, catch_up: CatchUp, grace: timedelta
) -> None:
    first = first_after(schedule, NOON - absence)

    verdict = decide_due(schedule, first, NOON, catch_up, grace)

    every = list(iterate_instants(schedule, first - TICK, NOON))
    kept = every[-MOST_MISSED:]
    assert told(verdict) == kept
    assert len(set(told(verdict))) == len(kept)
    if beyond := every[:-MOST_MISSED]:
        assert verdict.passed is not None
        assert (verdict.passed.first, verdict.passed.until) == (beyond[0], beyond[-1])
        assert verdict.passed.count in (None, len(beyond))
        assert verdict.passed.count is not None or isinstance(schedule, Cron)
    else:
        assert verdict.passed is None
    assert verdict.next_instant == (first if first > NOON else schedule.next_after(NOON))
    assert verdict.fire == _fired(kept, catch_up, grace)


def _fired(kept: list[datetime], catch_up: CatchUp, grace: timedelta) -> list[datetime]:
    """The rules of catching up, said once more."""
    match catch_up:
        case CatchUp.ALL:
            return kept
        case CatchUp.ONE:
            return kept[-1:]
        case CatchUp.SKIP:
            return [at for at in kept[-1:] if NOON - at <= grace]


@settings(deadline=None)  # the oracle takes its time
@holds_for(schedules, spans, st.lists(spans, min_size=1, max_size=4), st.sampled_from(CatchUp))
def test_however_often_one_looks_each_instant_comes_once(
    schedule: Schedule, absence: timedelta, pauses: list[timedelta], catch_up: CatchUp
) -> None:
    now = NOON - absence
    first: datetime | None = first_after(schedule, now)
    begun, seen = first, list[datetime]()

    for pause in pauses:
        now += pause
        if first is None or first > now:
            continue
        verdict = decide_due(schedule, first, now, catch_up, GRACE)
        if verdict.passed is not None:
            seen += iterate_instants(schedule, verdict.passed.first - TICK, verdict.passed.until)
        seen += told(verdict)
        first = verdict.next_instant

    assert begun is not None
    assert seen == list(iterate_instants(schedule, begun - TICK, now))


def test_an_instant_that_is_overtaken_says_so_and_one_that_is_late_too() -> None:
    minutely = parse_cron_schedule("* * * * *", "UTC")

    verdict = decide_due(minutely, NOON - timedelta(minutes=2), NOON + 59 * SECOND, CatchUp.SKIP, 30 * SECOND)

    assert [why for _, why in verdict.skip] == [OVERTAKEN, OVERTAKEN, MISSED]
    assert verdict.fire == []


@each_case(("late", "fires"), [(0, True), (60, True), (61, False)])
def test_without_catching_up_an_instant_fires_within_its_grace(late: int, fires: bool) -> None:  # noqa: FBT001
    daily = parse_cron_schedule("0 12 * * *", "UTC")

    verdict = decide_due(daily, NOON, NOON + late * SECOND, CatchUp.SKIP, GRACE)

    assert bool(verdict.fire) is fires
    assert verdict.next_instant == NOON + timedelta(days=1)


@each_case(("catch_up", "fires"), [(CatchUp.SKIP, False), (CatchUp.ONE, True), (CatchUp.ALL, True)])
def test_a_single_run_comes_once_and_never_again(catch_up: CatchUp, fires: bool) -> None:  # noqa: FBT001
    once = Every(0, NOON)

    verdict = decide_due(once, NOON, NOON + timedelta(days=400), catch_up, GRACE)

    assert told(verdict) == [NOON]
    assert bool(verdict.fire) is fires
    assert verdict.next_instant is None


def test_what_is_not_due_yet_stays_where_it_is() -> None:
    daily = parse_cron_schedule("0 12 * * *", "UTC")

    verdict = decide_due(daily, NOON, NOON - SECOND, CatchUp.ALL, GRACE)

    assert verdict == DueInstants(next_instant=NOON)


def test_a_trigger_that_is_no_longer_at_an_instant_goes_on_with_the_next_one() -> None:
    daily = parse_cron_schedule("0 12 * * *", "UTC")

    verdict = decide_due(daily, NOON + SECOND, NOON + 2 * SECOND, CatchUp.ALL, GRACE)

    assert verdict == DueInstants(next_instant=NOON + timedelta(days=1))


@each_case(
    "schedule",
    [
        Every(1, NOON - timedelta(days=20_000)),
        parse_cron_schedule("* * * * *", "America/New_York"),
        parse_cron_schedule("*/5 9-17 * * 1-5", "Australia/Lord_Howe"),
        parse_cron_schedule("30 2 * * *", "Europe/London"),
        parse_cron_schedule("0 0 29 2 *", "UTC"),
        parse_cron_schedule("* * * 1 *", "UTC"),
    ],
)
@each_case("days", [40, 4000, 18_000])
def test_a_long_absence_is_seen_through_quickly(schedule: Schedule, days: int) -> None:
    first = first_after(schedule, NOON - timedelta(days=days))
    decide_due(schedule, first, NOON, CatchUp.ALL, GRACE)  # what is read once is known

    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        verdict = decide_due(schedule, first, NOON, CatchUp.ALL, GRACE)
    finally:
        sys.setprofile(None)

    assert calls < MOST_CALLS  # there are up to 1,600 million instants
    assert verdict.fire == sorted(verdict.fire)
    assert len(verdict.fire) <= MOST_MISSED
    if verdict.passed is not None:
        assert len(verdict.fire) == MOST_MISSED
        assert verdict.passed.until == next(
            iterate_instants(schedule, verdict.passed.until - TICK, verdict.fire[0])
        )
        assert list(iterate_instants(schedule, verdict.passed.until, verdict.fire[0])) == verdict.fire[:1]


# With an end


@pytest.mark.parametrize("absence", [timedelta(minutes=3), timedelta(days=300)])
def test_an_instant_at_the_end_or_later_is_not_due_however_late_the_scheduler_comes(
    absence: timedelta,
) -> None:
    end = NOON + timedelta(minutes=2)
    for schedule in (
        Every(60, NOON, end_at=end),
        parse_cron_schedule("* * * * *", "UTC", end_at=end),
    ):
        verdict = decide_due(schedule, NOON, NOON + absence, CatchUp.ALL, GRACE)

        assert verdict == DueInstants(fire=[NOON, NOON + 60 * SECOND])


# With jitter

SEED = UUID(int=25)
jittered = st.builds(
    lambda schedule, jitter: structs.replace(schedule, jitter_seconds=jitter),
    schedules,
    st.integers(1, LONGEST_JITTER),
)


@settings(deadline=None, max_examples=50)
@holds_for(jittered, st.uuids())
def test_an_instant_fires_within_its_jitter_and_before_the_next_one(schedule: Schedule, seed: UUID) -> None:
    instants = list(islice(schedule.runs(NOON), 20))

    fires = [find_fire_time(schedule, seed, at) for at in instants]

    assert fires == [find_fire_time(schedule, seed, at) for at in instants]
    assert all(
        at <= fired < at + timedelta(seconds=schedule.jitter_seconds)
        for at, fired in zip(instants, fires, strict=True)
    )
    assert all(fired < following for fired, following in zip(fires, instants[1:], strict=False))


def test_instants_and_schedules_have_different_shares_of_the_jitter() -> None:
    schedule = Every(3600, NOON, jitter_seconds=3600)
    shares = {
        find_fire_time(schedule, UUID(int=seed), NOON + hour * timedelta(hours=1)).replace(hour=0)
        for seed in range(30)
        for hour in range(10)
    }

    assert len(shares) == 300
    assert min(shares).minute < 3
    assert max(shares).minute > 56


def test_nothing_fires_at_the_end_or_later() -> None:
    schedule = Every(3600, NOON, end_at=NOON + SECOND, jitter_seconds=3600)

    assert NOON <= find_fire_time(schedule, SEED, NOON) < NOON + SECOND


def test_an_instant_is_not_due_before_its_jitter_is_over() -> None:
    schedule = Every(3600, NOON, jitter_seconds=1800)
    fires = find_fire_time(schedule, SEED, NOON)
    assert fires > NOON

    before = decide_due(schedule, NOON, fires - TICK, CatchUp.SKIP, GRACE, seed=SEED)
    then = decide_due(schedule, NOON, fires, CatchUp.SKIP, GRACE, seed=SEED)
    late = decide_due(schedule, NOON, fires + GRACE, CatchUp.SKIP, GRACE, seed=SEED)
    too_late = decide_due(schedule, NOON, fires + GRACE + TICK, CatchUp.SKIP, GRACE, seed=SEED)

    assert before == DueInstants(next_instant=NOON)
    assert then == late == DueInstants([NOON], next_instant=NOON + timedelta(hours=1))
    assert too_late.skip == [(NOON, MISSED)]


def test_firings_that_jitter_brings_close_together_do_not_overtake_each_other() -> None:
    schedule = Every(60, NOON, jitter_seconds=60)
    first = next(
        at
        for at in schedule.runs(NOON)
        if find_fire_time(schedule, SEED, at + 60 * SECOND) - find_fire_time(schedule, SEED, at) < 10 * SECOND
    )
    second = first + 60 * SECOND
    now = find_fire_time(schedule, SEED, second)

    close = decide_due(schedule, first, now, CatchUp.SKIP, GRACE, seed=SEED)
    missed = decide_due(schedule, first - 60 * SECOND, now + 50 * SECOND, CatchUp.SKIP, GRACE, seed=SEED)

    assert (close.fire, close.skip) == ([first, second], [])
    assert (first, OVERTAKEN) in missed.skip or first in missed.fire
    assert (first - 60 * SECOND, OVERTAKEN) in missed.skip


@settings(deadline=None, max_examples=50)
@holds_for(jittered, spans, st.sampled_from(CatchUp), st.timedeltas(SECOND, timedelta(hours=1)))
def test_with_jitter_every_instant_is_fired_or_skipped_or_comes_next(
    schedule: Schedule, absence: timedelta, catch_up: CatchUp, grace: timedelta
) -> None:
    first = first_after(schedule, NOON - absence)

    verdict = decide_due(schedule, first, NOON, catch_up, grace, seed=SEED)

    every = list(iterate_instants(schedule, first - TICK, NOON))
    due = [at for at in every[-MOST_MISSED:] if find_fire_time(schedule, SEED, at) <= NOON]
    assert told(verdict) == due
    assert verdict.next_instant == first_after(schedule, due[-1] if due else first - TICK)
