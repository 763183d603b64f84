"""`fairlead workflows`."""

import sys
from typing import Any, BinaryIO
from uuid import UUID

import click
import msgspec

from fairlead.actions import workflows as actions
from fairlead.cli import output, workflow_output
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.cli.tenant_names import read_slugs
from fairlead.cli.tokens import open_tenant_transaction
from fairlead.db.tx import Tx
from fairlead.errors import Fault, InvalidInput
from fairlead.model.access import GLOBAL_TENANT, Principal
from fairlead.model.workflow.run import PublishedWorkflow, RunStatus


@click.group()
def workflows() -> None:
    """Workflows (graphs of jobs) and their runs."""


@workflows.command("list")
@click.option("--tenant", help="Only workflows that this tenant can start: slug or id.")
@output.json_option
@command
async def list_workflows(session: CommandSession, *, tenant: str | None, as_json: bool) -> None:
    """List the newest version of each workflow, by key."""
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await _list_all(tx, principal)
        slugs = await read_slugs(tx, principal)
    if as_json:
        output.print_json({"items": [workflow_output.summary_document(one, slugs) for one in found]})
    else:
        workflow_output.print_workflows(found, slugs)


async def _list_all(tx: Tx, principal: Principal) -> list[PublishedWorkflow]:
    """All pages of the list."""
    found: list[PublishedWorkflow] = []
    while True:
        key, tenant_id = (found[-1].key, found[-1].tenant_id) if found else ("", None)
        page = await actions.list_workflows(
            tx, principal, after=key, after_tenant=tenant_id, limit=actions.MAX_PAGE
        )
        found += page
        if not page.more:
            return found


@workflows.command()
@click.argument("key")
@click.option("--tenant", help="The workflow's tenant, slug or id (default: shared workflows).")
@click.option("--version", type=int, help="This version instead of the newest.")
@output.json_option
@command
async def show(
    session: CommandSession, *, key: str, tenant: str | None, version: int | None, as_json: bool
) -> None:
    """Show a workflow and its steps. With --json, its spec can be edited and put back."""
    async with session.open() as fl, fl.transaction() as tx:
        found = await actions.get(tx, fl.principal, tenant, key, version=version)
        slugs = await read_slugs(tx, fl.principal)
    if as_json:
        output.print_json(workflow_output.document(found))
    else:
        workflow_output.print_workflow(found, slugs)


@workflows.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--tenant", default=GLOBAL_TENANT, help="The workflow's tenant, slug or id (default: shared by all)."
)
@output.json_option
@command
async def put(session: CommandSession, *, file: BinaryIO, tenant: str, as_json: bool) -> None:
    """Publish the workflow in FILE, a JSON object with key and steps; - is stdin.

    A spec that equals the newest version is not published again.
    """
    spec = read_json(file.read(), "workflow")
    async with session.open() as fl, fl.transaction() as tx:
        made, is_new = await actions.publish(tx, fl.principal, tenant, spec)
        shown = await actions.get(tx, fl.principal, tenant, made.key, version=made.version)
    if as_json:
        output.print_json({**workflow_output.document(shown), "is_new": is_new})
    else:
        what = "published" if is_new else "unchanged"
        output.console().print(f"{what} {made.key} version {made.version}", markup=False)


@workflows.command()
@click.argument("key")
@click.option("--tenant", required=True, help="The run's tenant: slug or id.")
@click.argument("input", required=False)
@click.option("--input", "given", help="The run's input as JSON, like INPUT; - reads it from stdin.")
@click.option(
    "--key", "unique_key", help="A unique key: if a run with this key exists, no second one is started."
)
@click.option("--version", type=int, help="This version instead of the newest.")
@click.option("--correlation-id", help="Your own id for finding the run's jobs.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended; exit 1 unless it succeeded.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait at most this many seconds.")
@output.json_option
@command
async def start(
    session: CommandSession,
    *,
    key: str,
    tenant: str,
    input: str | None,  # noqa: A002 - the word that users know
    given: str | None,
    unique_key: str | None,
    version: int | None,
    correlation_id: str | None,
    wait: bool,
    timeout: float | None,  # noqa: ASYNC109 - the option's name
    as_json: bool,
) -> None:
    """Start a run of the workflow KEY, with its INPUT as JSON."""
    if input is not None and given is not None:
        raise InvalidInput("The input is given twice: leave out --input.", [Fault("input", "given twice")])
    given = given if input is None else input
    text = sys.stdin.buffer.read() if given == "-" else given
    async with session.open() as fl:
        run = await fl.start(
            key,
            tenant=tenant,
            input=None if text is None else read_json(text, "input"),
            version=version,
            key=unique_key,
            correlation_id=correlation_id,
        )
        if not as_json:
            output.console().print(f"{'already exists:' if run.deduplicated else 'started'} {run.id}")
        if wait or timeout is not None:
            await run.result(timeout)
        shown = (await run.read()).run
    if as_json:
        output.print_json({**workflow_output.run_document(shown), "deduplicated": run.deduplicated})
    elif shown.status is not RunStatus.RUNNING:
        result = msgspec.json.encode(shown.output).decode()
        output.console().print(f"{shown.status}: {result}", markup=False)


@workflows.command()
@click.option("--tenant", help="Only this tenant's runs: slug or id.")
@click.option("--workflow", help="Only runs of this workflow: its key.")
@click.option("--key", hidden=True)  # the former name of --workflow
@click.option("--status", type=output.enum_choice(RunStatus), help="Only runs with this status.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=20, show_default=True)
@click.option("--after", type=click.UUID, help="Continue after the run with this id.")
@output.json_option
@list_command
async def runs(
    session: CommandSession,
    *,
    tenant: str | None,
    workflow: str | None,
    key: str | None,
    status: str | None,
    limit: int,
    after: UUID | None,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    wanted = None if status is None else RunStatus(status)
    async with open_tenant_transaction(session, tenant) as (tx, principal):
        found = await actions.list_runs(
            tx, principal, key=workflow or key, status=wanted, before=after, limit=limit
        )
    if as_json:
        output.print_json({"items": [workflow_output.run_document(one) for one in found]})
    else:
        workflow_output.print_runs(found)


@workflows.command()
@click.argument("run_id", type=click.UUID)
@click.option(
    "--first", type=click.IntRange(min=0), default=0, help="Of more than 1000 steps, begin at this position."
)
@output.json_option
@command
async def run(session: CommandSession, *, run_id: UUID, first: int, as_json: bool) -> None:
    """Show a run: its error, and the state of each step."""
    async with session.open() as fl, fl.transaction() as tx:
        shown = await actions.show_run(tx, fl.principal, run_id, first=first)
    if as_json:
        output.print_json(workflow_output.run_with_steps_document(shown))
    else:
        workflow_output.print_run(shown)


@workflows.command()
@click.argument("run_id", type=click.UUID)
@output.json_option
@command
async def cancel(session: CommandSession, *, run_id: UUID, as_json: bool) -> None:
    """Cancel a run: queued steps are canceled, running ones are asked to stop, no more steps start."""
    async with session.open() as fl:
        stopped = await fl.cancel_run(run_id)
    what = "canceled" if stopped.status is RunStatus.CANCELED else "cancel requested"
    _print_answer(stopped, what, as_json=as_json)


@workflows.command()
@click.argument("run_id", type=click.UUID)
@output.json_option
@command
async def retry(session: CommandSession, *, run_id: UUID, as_json: bool) -> None:
    """Resume a failed or canceled run from the steps that did not succeed."""
    async with session.open() as fl:
        again = await fl.retry_run(run_id)
    _print_answer(again, "resumed", as_json=as_json)


def _print_answer(changed: Any, what: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(workflow_output.run_document(changed))
    else:
        output.console().print(f"{what} {changed.id}")
