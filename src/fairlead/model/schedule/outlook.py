"""The runs of schedules in a window of time, in bins of some minutes; and the clock changes there. Pure."""

from datetime import datetime, timedelta
from itertools import islice, takewhile

import msgspec

from fairlead.model.schedule.spec import Schedule
from fairlead.model.schedule.zone import iterate_offset_spans, load_zone


class ClockChange(msgspec.Struct, frozen=True):
    """A zone's clocks change, from one offset to another."""

    zone: str
    at: datetime
    before: timedelta
    after: timedelta


def list_first_in_bins(
    schedule: Schedule, start: datetime, end: datetime, bin_size: timedelta
) -> list[datetime]:
    """The first run in each bin after `start`. Bins without a run cost nothing, and further runs of a bin neither."""
    found = list[datetime]()
    at = schedule.next_after(start)
    while at is not None and at < end:
        found.append(at)
        bin_end = start + ((at - start) // bin_size + 1) * bin_size
        # a run at the very end of a bin belongs to the next one
        at = schedule.next_after(bin_end - timedelta.resolution)
    return found


def list_next(schedule: Schedule, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The first `most` runs after an instant and before another."""
    return list(islice(takewhile(lambda at: at < until, schedule.runs(after)), most))


def find_clock_changes(zone: str, start: datetime, end: datetime) -> list[ClockChange]:
    """The clock changes of a zone between two instants."""
    found, last = list[ClockChange](), None
    for span in iterate_offset_spans(load_zone(zone), start):
        if span.start >= end:
            break
        if last is not None and span.offset != last.offset:
            found.append(ClockChange(zone, span.start, last.offset, span.offset))
        last = span
    return found
