"""`fairlead jobs watch`: a live view of the jobs."""

import asyncio
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fairlead.actions import stats
from fairlead.actions.stats import StatsOverview
from fairlead.cli import output
from fairlead.cli.session import CommandSession, command
from fairlead.db.database import Database
from fairlead.db.listen import Listener
from fairlead.db.tx import Tx
from fairlead.errors import DatabaseBusy, DatabaseUnreachable
from fairlead.model.summary import FailureSummary, RunningJobSummary
from fairlead.runtime.service import wait_any

EVERY_SECONDS = 1.0
# The shortest time between two refreshes.
SHORTEST_SECONDS = 0.2
WINDOW = timedelta(seconds=5)

Show = Callable[[StatsOverview, float], None]


@click.command()
@click.option("--tenant", help="Only this tenant's jobs: slug or id.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop after this many seconds.")
@output.json_option
@command
async def watch(session: CommandSession, *, tenant: str | None, seconds: float | None, as_json: bool) -> None:
    """Watch jobs as they run: counts by status, the rate of finished jobs, running jobs, the latest failures.

    On a terminal the view is updated in place; otherwise lines are printed. Ctrl-C ends it.
    """
    heard, stop = asyncio.Event(), _stop_on_signal()
    rate = GrowthRate()
    async with (
        session.open() as fl,
        Listener(fl.direct_url, fl.settings.schema, citus=fl.settings.citus) as listener,
    ):
        patience = OverviewReader(lambda tx: stats.get_overview(tx, fl.principal, tenant=tenant), fl.database)
        with listener.subscribe(lambda _: heard.set()), _open_display(as_json=as_json) as show:
            await wait_any(listener.connected, stop, seconds=EVERY_SECONDS)
            clock = asyncio.get_running_loop().time
            end = None if seconds is None else clock() + seconds
            while True:
                heard.clear()
                if seen := await patience.look(stop):
                    show(seen, rate.add(seen.counts.at, seen.counts.finished))
                left = EVERY_SECONDS if end is None else min(EVERY_SECONDS, end - clock())
                if left <= 0:
                    break
                await wait_any(stop, seconds=min(SHORTEST_SECONDS, left))
                await wait_any(heard, stop, seconds=max(0.0, left - SHORTEST_SECONDS))
                if stop.is_set():
                    return
    patience.end()


class OverviewReader:
    """Queries the database; while it is unreachable, reports that once and lets the watch continue."""

    def __init__(self, query: Callable[[Tx], Awaitable[StatsOverview]], database: Database) -> None:
        self._query = query
        self._database = database
        self._away: DatabaseUnreachable | DatabaseBusy | None = None

    async def look(self, stop: asyncio.Event) -> StatsOverview | None:
        """The current overview; None if the database is unreachable, or if `stop` is set first."""
        looking = asyncio.create_task(self._database.transact(self._query))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((looking, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not looking.done():
            looking.cancel()
            return None
        try:
            seen = await looking
        except (DatabaseUnreachable, DatabaseBusy) as error:
            self._report_change(error)
            return None
        self._report_change(None)
        return seen

    def _report_change(self, away: DatabaseUnreachable | DatabaseBusy | None) -> None:
        """Report once that the database is unreachable, and once that it is back."""
        if (away is None) != (self._away is None):
            said = (
                "The database is back."
                if away is None
                else f"{away.message} The watch continues when it is back."
            )
            output.console(stderr=True).print(said, style="dim", highlight=False, markup=False)
        self._away = away

    def end(self) -> None:
        """Raise the last error if the watch ends while the database is unreachable."""
        if self._away is not None:
            raise self._away


class GrowthRate:
    """The growth of a total per second, over the last few seconds."""

    def __init__(self, window: timedelta = WINDOW) -> None:
        self._window = window
        self._seen: deque[tuple[datetime, int]] = deque()

    def add(self, at: datetime, total: int) -> float:
        """Add the total at this time; the rate up to now."""
        self._seen.append((at, total))
        while len(self._seen) > 2 and at - self._seen[1][0] >= self._window:
            self._seen.popleft()
        then, before = self._seen[0]
        passed = (at - then).total_seconds()
        # manual retries and retention reduce the total: the rate is never negative
        return max(0, total - before) / passed if passed > 0 else 0.0


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    return stop


@contextmanager
def _open_display(*, as_json: bool) -> Iterator[Show]:
    """The function that prints a refresh: JSON, a live view on a terminal, else lines."""
    out = output.console()
    if as_json:
        yield lambda seen, rate: output.print_json(as_object(seen, rate))
    elif out.is_terminal:
        with Live(console=out, auto_refresh=False) as live:
            yield lambda seen, rate: live.update(as_view(seen, rate), refresh=True)
    else:
        lines = WatchLines()
        yield lambda seen, rate: out.print(Text("\n".join(lines.of(seen, rate))))


def as_object(seen: StatsOverview, rate: float) -> dict[str, Any]:
    """One refresh as a JSON object."""
    return {
        "at": seen.counts.at,
        "counts": seen.counts.by_status,
        "per_second": round(rate, 2),
        "running": seen.running,
        "failures": seen.failures,
    }


class WatchLines:
    """Renders refreshes as lines: the counts, and each running or failed job when it first appears."""

    def __init__(self) -> None:
        self._printed: set[tuple[Any, ...]] = set()

    def of(self, seen: StatsOverview, rate: float) -> list[str]:
        """The lines of one refresh."""
        counts = "  ".join(f"{status} {number}" for status, number in seen.counts.by_status.items())
        lines = [f"{seen.counts.at:%H:%M:%S}  {counts}  {rate:.1f}/s"]
        jobs: list[RunningJobSummary | FailureSummary] = [*seen.running, *seen.failures]
        lines += [f"  {_render_job(one)}" for one in jobs if _job_key(one) not in self._printed]
        self._printed = {_job_key(one) for one in jobs}
        return lines


def _job_key(one: RunningJobSummary | FailureSummary) -> tuple[Any, ...]:
    return one.job_id, one.attempt_no if isinstance(one, RunningJobSummary) else one.finished_at


def _render_job(one: RunningJobSummary | FailureSummary) -> str:
    if isinstance(one, RunningJobSummary):
        return f"running {one.job_id}  {one.tenant}  {one.definition_key}  on {one.worker_id}"
    error = output.render_cell(one.last_error).plain
    return f"{one.status} {one.job_id}  {one.tenant}  {one.definition_key}  {error}"


def as_view(seen: StatsOverview, rate: float) -> RenderableType:
    """One refresh as a view for a terminal."""
    levels = Table(box=None, header_style="bold", pad_edge=False)
    for status in seen.counts.by_status:
        levels.add_column(Text(status, style=output.STATUS_STYLES[status]), justify="right")
    levels.add_column("finished", justify="right")
    levels.add_row(*(f"{number:,}" for number in seen.counts.by_status.values()), f"{rate:,.1f}/s")
    more = seen.counts.running - len(seen.running)
    return Group(
        levels,
        *_render_section(f"running, longest first{f' ({more:,} more)' if more > 0 else ''}", seen.running),
        *_render_section("failed last", seen.failures),
        Text("\nCtrl-C ends", style="dim"),
    )


def _render_section(title: str, rows: list[RunningJobSummary] | list[FailureSummary]) -> list[RenderableType]:
    if not rows:
        return []
    made = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        made.add_row(*(output.render_cell(value) for value in _cells(row)))
    return [Text(f"\n{title}", style="bold"), made]


def _cells(row: RunningJobSummary | FailureSummary) -> tuple[Any, ...]:
    if isinstance(row, RunningJobSummary):
        return row.job_id, row.tenant, row.definition_key, row.worker_id, row.started_at
    return row.job_id, row.tenant, row.definition_key, row.status, row.finished_at, row.last_error
