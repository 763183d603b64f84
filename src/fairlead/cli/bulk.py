"""Cancels or retries many jobs by filter: counts them, asks for confirmation, then changes them."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import msgspec
from msgspec.structs import fields, replace

from fairlead.actions.bulk_jobs import BulkResult, describe_skips
from fairlead.actions.jobs import JobFilter
from fairlead.cli import output
from fairlead.cli.job_filter import describe_filter
from fairlead.cli.session import CommandSession
from fairlead.errors import InvalidInput
from fairlead.library.app import Fairlead
from fairlead.model.field import is_internal

Action = Callable[..., Awaitable[BulkResult]]


class BulkVerb(msgspec.Struct, frozen=True):
    """A bulk action, with the words for its messages."""

    act: Action
    infinitive: str
    participle: str
    # which of the matching jobs the action can change
    movable: str


async def change_many(
    session: CommandSession,
    verb: BulkVerb,
    wanted: JobFilter,
    *,
    limit: int,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Count the matching jobs; unless it is a dry run, ask for confirmation and change them."""
    if replace(wanted, tenant=None) == JobFilter():
        raise InvalidInput(
            f"Select the jobs to {verb.infinitive}: give a job's id, or at least one option such as --status or --definition; "
            "--tenant alone is not enough."
        )
    async with session.open() as fl:
        counted = await _change_to_end(fl, verb, wanted, limit=limit, dry_run=True)
        if dry_run or not counted.count:
            _print_answer(counted, _describe_count(counted, verb, wanted), dry_run=dry_run, as_json=as_json)
            return
        if not yes:
            _confirm(counted, verb, wanted, as_json=as_json)
        with _show_progress(f"{counted.count:,} jobs", as_json=as_json):
            # not more than were counted and confirmed, also if more match by now
            done = await _change_to_end(fl, verb, wanted, limit=counted.count)
    _print_answer(done, _describe_result(done, verb), dry_run=False, as_json=as_json)


async def _change_to_end(
    fl: Fairlead, verb: BulkVerb, wanted: JobFilter, *, limit: int, dry_run: bool = False
) -> BulkResult:
    """Change (or count) the matching jobs up to the limit, also where a search takes several calls."""
    total = BulkResult(0, more=False)
    cursor: str | None = None
    while True:
        done = await fl.database.transact(
            lambda tx, left=limit - total.count, cursor=cursor: verb.act(  # type: ignore[misc]
                tx, fl.principal, wanted, limit=left, dry_run=dry_run, cursor=cursor
            ),
            unhurried=not dry_run,
        )
        total = replace(total.plus(done), more=done.more, next_cursor=None)
        cursor = done.next_cursor
        if cursor is None or total.count >= limit:
            return total


def _confirm(counted: BulkResult, verb: BulkVerb, wanted: JobFilter, *, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise InvalidInput(
            f"{_describe_count(counted, verb, wanted)} Nothing was changed: add --yes to {verb.infinitive} them."
        )
    output.console().print(_describe_count(counted, verb, wanted), markup=False)
    click.confirm(f"{verb.infinitive.capitalize()} them?", abort=True)


def _show_progress(what: str, *, as_json: bool) -> AbstractContextManager[Any]:
    """A progress indicator on a terminal; none with --json."""
    return nullcontext() if as_json else output.console(stderr=True).status(what)


def _describe_count(counted: BulkResult, verb: BulkVerb, wanted: JobFilter) -> str:
    number = f"{'More than ' if counted.more else ''}{counted.count:,}"
    jobs = "job matches" if counted.count == 1 and not counted.more else "jobs match"
    stuck = f" {_describe_skipped(counted)}" if counted.skipped else ""
    return f"{number if counted.count else 'No'} {jobs} {describe_filter(wanted)} and {verb.movable}.{stuck}"


def _describe_result(done: BulkResult, verb: BulkVerb) -> str:
    said = [f"{verb.participle} {done.count:,} {'job' if done.count == 1 else 'jobs'}."]
    said += [_describe_skipped(done)] if done.skipped else []
    said += ["More match: run the command again."] if done.more else []
    return " ".join(said)


def _describe_skipped(bulk: BulkResult) -> str:
    return f"{bulk.skipped:,} more match but cannot be changed: {describe_skips(bulk.reasons)}."


def _print_answer(bulk: BulkResult, text: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        # the command goes on to the end by itself
        names = [one.name for one in fields(bulk) if not is_internal(one) and one.name != "next_cursor"]
        shown = {name: getattr(bulk, name) for name in names}
        output.print_json({**shown, "dry_run": dry_run})
    else:
        output.console().print(text, markup=False)
