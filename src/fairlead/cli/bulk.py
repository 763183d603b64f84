"""Many jobs canceled or retried by filter: counted first, then asked about, then changed."""

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from fairlead.actions.bulk_jobs import Bulk
from fairlead.actions.jobs import Filter
from fairlead.cli import output
from fairlead.cli.job_filter import describe
from fairlead.cli.session import Session
from fairlead.errors import InvalidInput

Action = Callable[..., Awaitable[Bulk]]


class Verb(msgspec.Struct, frozen=True):
    """One of the two things that can be done to many jobs, and its words."""

    act: Action
    infinitive: str
    participle: str
    # which of the jobs that match it can move
    movable: str


async def change_many(
    session: Session, verb: Verb, wanted: Filter, *, limit: int, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Count what matches; unless that is all that was asked for, ask and change it."""
    if replace(wanted, tenant=None) == Filter():
        raise InvalidInput(
            f"Say which jobs to {verb.infinitive}: a job's id, or at least one option such as --status or --definition; "
            "--tenant alone is not enough."
        )
    async with session.open() as fl:
        counted = await fl.database.transact(
            lambda tx: verb.act(tx, fl.principal, wanted, limit=limit, dry_run=True)
        )
        if dry_run or not counted.count:
            _answer(counted, _counted(counted, verb, wanted), dry_run=dry_run, as_json=as_json)
            return
        if not yes:
            _ask(counted, verb, wanted, as_json=as_json)
        with _busy(f"{counted.count:,} jobs", as_json=as_json):
            # as many as were counted and agreed to, also if more match by now
            done = await fl.database.transact(
                lambda tx: verb.act(tx, fl.principal, wanted, limit=counted.count), unhurried=True
            )
    _answer(done, _done(done, verb), dry_run=False, as_json=as_json)


def _ask(counted: Bulk, verb: Verb, wanted: Filter, *, as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise InvalidInput(
            f"{_counted(counted, verb, wanted)} Nothing was changed: say --yes to {verb.infinitive} them."
        )
    output.console().print(_counted(counted, verb, wanted), markup=False)
    click.confirm(f"{verb.infinitive.capitalize()} them?", abort=True)


def _busy(what: str, *, as_json: bool) -> AbstractContextManager[Any]:
    """A sign on a terminal that it is under way; silence for machines."""
    return nullcontext() if as_json else output.console(stderr=True).status(what)


def _counted(counted: Bulk, verb: Verb, wanted: Filter) -> str:
    number = f"{'More than ' if counted.more else ''}{counted.count:,}"
    jobs = "job matches" if counted.count == 1 and not counted.more else "jobs match"
    stuck = f" {_stuck(counted)}" if counted.skipped else ""
    return f"{number if counted.count else 'No'} {jobs} {describe(wanted)} and {verb.movable}.{stuck}"


def _done(done: Bulk, verb: Verb) -> str:
    said = [f"{verb.participle} {done.count:,} {'job' if done.count == 1 else 'jobs'}."]
    said += [_stuck(done)] if done.skipped else []
    said += ["More match: run the command again."] if done.more else []
    return " ".join(said)


def _stuck(bulk: Bulk) -> str:
    return (
        f"{bulk.skipped:,} more match and stay as they are: another job has the dedupe key, the host is gone, or "
        "another change of the job is under way."
    )


def _answer(bulk: Bulk, text: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        said = {"count": bulk.count, "more": bulk.more, "skipped": bulk.skipped, "dry_run": dry_run}
        output.say_json(said)
    else:
        output.console().print(text, markup=False)
