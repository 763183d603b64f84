"""The overview of several cells names each tenant and each definition once."""

from datetime import UTC, datetime

from fairlead.model.finding import Verdict
from fairlead.model.job import JobStatus
from fairlead.model.overview import MOST_NAMES, BusyName, Overview, merge_overviews
from fairlead.model.summary import JobTimes, Percentiles


def overview(busiest: list[BusyName], slowest: list[JobTimes]) -> Overview:
    return Overview(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        tenant=None,
        verdict=Verdict.OK,
        summary="",
        problems=[],
        problems_left_out=0,
        counts=dict.fromkeys(JobStatus, 0),
        workers=None,
        wait_ms=None,
        run_ms=None,
        slowest=slowest,
        busiest=busiest,
        checks=[],
    )


def times(key: str, ms: int) -> JobTimes:
    return JobTimes(
        definition_key=key, jobs=10, wait_ms=Percentiles(1, ms, ms), run_ms=Percentiles(1, ms, ms)
    )


def test_tenants_of_all_cells_are_named() -> None:
    merged = merge_overviews(
        [
            overview([BusyName("acme", 5, 1), BusyName("global", 1, 0)], []),
            overview([BusyName("globex", 7, 0), BusyName("global", 2, 2)], []),
        ]
    )

    assert merged.busiest == [BusyName("globex", 7, 0), BusyName("acme", 5, 1), BusyName("global", 3, 2)]


def test_a_definition_of_two_cells_is_named_once_with_the_slower_times() -> None:
    merged = merge_overviews(
        [
            overview([], [times("mail", 20), times("report", 15)]),
            overview([], [times("mail", 30)]),
        ]
    )

    assert [(one.definition_key, one.jobs, one.run_ms) for one in merged.slowest] == [
        ("mail", 20, Percentiles(1, 30, 30)),
        ("report", 10, Percentiles(1, 15, 15)),
    ]


def test_no_more_names_than_of_one_cell() -> None:
    cells = [overview([BusyName(f"{cell}{n}", n, 0) for n in range(MOST_NAMES)], []) for cell in "ab"]

    assert len(merge_overviews(cells).busiest) == MOST_NAMES
