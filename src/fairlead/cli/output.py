"""Output of the command line: tables and colours, or JSON."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import click
import msgspec
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fairlead.model.ansi import escape_json, strip_controls

STATUS_STYLES = {
    "queued": "cyan",
    "running": "blue",
    "succeeded": "green",
    "failed": "red",
    "dead_letter": "bold red",
    "canceled": "yellow",
    "enqueued": "green",
    "deduplicated": "cyan",
    "skipped": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}
LONGEST_CELL = 60


def enum_choice(kinds: type[StrEnum]) -> click.Choice[str]:
    """A click choice between the values of an enum."""
    return click.Choice([one.value for one in kinds])


json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again for `command`: rich would exit here, inside the event loop."""
        raise  # noqa: PLE0704 - rich calls this where it has caught it

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Remove control characters: the text may come from a tenant and must not control the terminal."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(strip_controls(segment.text), segment.style)


def console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    if (collected := _collected.get()) is not None:
        lists, cell = collected
        lists.documents.append((cell, msgspec.to_builtins(value)))
        return
    click.echo(escape_json(msgspec.json.encode(value, order="deterministic").decode()))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str) -> None:
    """Print rows as a table, or `empty` if there are none."""
    if (collected := _collected.get()) is not None:
        lists, cell = collected
        lists.columns, lists.empty = columns, empty
        lists.rows += [(cell, row) for row in rows]
        return
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        grid.add_column(column, no_wrap=True)
    for row in rows:
        grid.add_row(*(render_cell(value) for value in row))
    if grid.row_count:
        _print_whole(grid)
    else:
        console().print(empty)
        _print_database()


class CollectedLists:
    """The lists that a command prints in several cells, to print them as one."""

    def __init__(self) -> None:
        self.documents: list[tuple[str, Any]] = []
        self.columns: Sequence[str] = ()
        self.rows: list[tuple[str, Sequence[Any]]] = []
        self.empty = ""

    def print_all(self, home: str | None) -> None:
        """Print the lists; `home` is the name of the home cell if there are several, which are then named."""
        if self.documents:
            _, first = self.documents[0]
            items = [
                {**item, "cell": cell or home} if home else item
                for cell, document in self.documents
                for item in document["items"]
            ]
            # a cursor is the place in the list of one cell
            print_json(
                {
                    **first,
                    "items": items,
                    **({"next_cursor": None} if home and "next_cursor" in first else {}),
                }
            )
        elif home is None:
            print_table(self.columns, [row for _, row in self.rows], empty=self.empty)
        else:
            rows = [(cell or home, *row) for cell, row in self.rows]
            print_table(("cell", *self.columns), rows, empty=self.empty)


_collected: ContextVar[tuple[CollectedLists, str] | None] = ContextVar("collected", default=None)


@contextmanager
def collect(lists: CollectedLists, cell: str) -> Iterator[None]:
    """Collect what the block prints in a cell, instead of printing it."""
    token = _collected.set((lists, cell))
    try:
        yield
    finally:
        _collected.reset(token)


def _print_database() -> None:
    """Name the database after an empty table: new users often query another database than they think."""
    context = click.get_current_context(silent=True)
    if context is not None and (describe := getattr(context.obj, "describe_database", None)) is not None:
        for line in describe():
            console(stderr=True).print(Text(line, style="dim"))


def _print_whole(grid: Table) -> None:
    """Print a table at its full width: a shortened id cannot be copied."""
    out = console()
    out.width = max(out.width, Measurement.get(out, out.options.update(max_width=10_000), grid).maximum)
    out.print(grid)


def render_cell(value: Any) -> Text:
    """A value as a cell of a table."""
    if value is None:
        return Text("–", style="dim")
    if isinstance(value, Text):
        return value
    if isinstance(value, datetime):
        return Text(format_distance(value))
    text = " ".join(str(value).split())
    text = text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
    return Text(text, style=STATUS_STYLES.get(text, ""))


def format_distance(moment: datetime) -> str:
    """A time as its distance from now."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if abs(seconds) >= size:
            return (
                f"{abs(seconds) / size:.0f} {unit} ago"
                if seconds > 0
                else f"in {abs(seconds) / size:.0f} {unit}"
            )
    return f"{abs(seconds):.0f} s ago" if seconds >= 0 else f"in {abs(seconds):.0f} s"


def format_moment(moment: datetime | None) -> str | None:
    """A time to the second, with its distance from now."""
    return None if moment is None else f"{moment.isoformat(timespec='seconds')} ({format_distance(moment)})"


def print_facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one pair per line."""
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in pairs:
        grid.add_row(
            name,
            value
            if isinstance(value, Text)
            else Text(str(value))
            if value is not None
            else render_cell(None),
        )
    _print_whole(grid)


class OneOrMore(click.ParamType[list[str]]):
    """One or more values of an enum, separated by commas; with `multiple`, the option may also be repeated."""

    name = "text"

    def __init__(self, kinds: type[StrEnum]) -> None:
        self._choice = enum_choice(kinds)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:  # noqa: ARG002 - click's
        return f"[{'|'.join(self._choice.choices)}][,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        return [self._choice.convert(one.strip(), param, ctx) for one in str(value).split(",")]


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601; without a time zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2026-02-16T10:30:00Z or 2026-02-16.", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class PastMoment(Moment):
    """A time, or its distance before now: 90s, 15m, 2h or 1d."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        ago = re.fullmatch(r"(\d{1,6})([smhd])", str(value))
        if ago is None:
            return super().convert(value, param, ctx)
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[ago[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(ago[1])})
