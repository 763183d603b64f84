"""`fairlead approvals`."""

from uuid import UUID

import click
import msgspec

from fairlead.actions import approvals as actions
from fairlead.cli import output
from fairlead.cli.json_input import read_json
from fairlead.cli.session import CommandSession, command, list_command
from fairlead.model.approval import Approval, ApprovalStatus

COLUMNS = ("id", "tenant", "title", "status", "requested", "due", "roles", "answered by")


@click.group()
def approvals() -> None:
    """List and answer what durable functions ask people for."""


@approvals.command("list")
@click.option("--tenant", help="Only this tenant's approvals: slug or id.")
@click.option(
    "--status",
    type=click.Choice([*(one.value for one in ApprovalStatus), actions.ANY]),
    default=str(ApprovalStatus.OPEN),
    show_default=True,
)
@click.option("--job", "job_id", type=click.UUID, help="Only approvals of this job.")
@click.option("--limit", type=click.IntRange(1, actions.MAX_PAGE), default=50, show_default=True)
@click.option("--cursor", help="Continue after the approval with this id.")
@output.json_option
@list_command
async def list_approvals(
    session: CommandSession,
    *,
    tenant: str | None,
    status: str,
    job_id: UUID | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List approvals, newest first."""
    async with session.open() as fl:
        page = await fl.list_approvals(
            tenant=tenant, status=status, job_id=job_id, limit=limit, cursor=cursor
        )
    if as_json:
        output.print_json(page)
        return
    output.print_table(
        COLUMNS,
        [
            (
                one.id,
                one.tenant,
                one.title,
                one.status,
                one.requested_at,
                one.due_at,
                ", ".join(one.roles),
                one.answered_by,
            )
            for one in page.items
        ],
        empty="No matching approvals. A durable function asks for one with ctx.wait_for_approval.",
    )
    if page.next_cursor:
        output.console(stderr=True).print(f"more: --cursor {page.next_cursor}", style="dim")


@approvals.command()
@click.argument("approval_id", type=click.UUID)
@output.json_option
@command
async def show(session: CommandSession, *, approval_id: UUID, as_json: bool) -> None:
    """Show an approval: its form, and the answer if there is one."""
    async with session.open() as fl:
        found = await fl.read_approval(approval_id)
    _print_approval(found, as_json=as_json)


@approvals.command()
@click.argument("approval_id", type=click.UUID)
@click.argument("values", required=False)
@click.option("--comment", help="A text for the function and the audit log.")
@output.json_option
@command
async def approve(
    session: CommandSession, *, approval_id: UUID, values: str | None, comment: str | None, as_json: bool
) -> None:
    """Approve, with the VALUES of the form as JSON: the function goes on."""
    given = None if values is None else read_json(values, "values")
    async with session.open() as fl:
        answered = await fl.approve(approval_id, given, comment=comment)
    _print_approval(answered, as_json=as_json)


@approvals.command()
@click.argument("approval_id", type=click.UUID)
@click.argument("values", required=False)
@click.option("--comment", help="A text for the function and the audit log.")
@output.json_option
@command
async def reject(
    session: CommandSession, *, approval_id: UUID, values: str | None, comment: str | None, as_json: bool
) -> None:
    """Reject; VALUES of the form, as JSON, are optional: the function goes on."""
    given = None if values is None else read_json(values, "values")
    async with session.open() as fl:
        answered = await fl.reject(approval_id, given, comment=comment)
    _print_approval(answered, as_json=as_json)


def _print_approval(approval: Approval, *, as_json: bool) -> None:
    if as_json:
        output.print_json(approval)
        return
    pairs = [
        ("id", approval.id),
        ("tenant", approval.tenant),
        ("title", approval.title),
        ("description", approval.description),
        ("status", approval.status),
        ("job", approval.job_id),
        ("function", approval.definition_key),
        ("name", approval.name),
        ("requested", output.format_moment(approval.requested_at)),
        ("due", output.format_moment(approval.due_at)),
        ("may answer", ", ".join(approval.roles)),
        (
            "escalates",
            approval.escalate and f"{approval.escalate}, {output.format_moment(approval.escalate_at)}",
        ),
        ("escalated", output.format_moment(approval.escalated_at)),
        ("form", None if approval.form is None else msgspec.json.encode(approval.form).decode()),
        ("answered by", approval.answered_by),
        ("answered", output.format_moment(approval.answered_at)),
        ("comment", approval.comment),
        ("values", None if approval.values is None else msgspec.json.encode(approval.values).decode()),
    ]
    output.print_facts((name, value) for name, value in pairs if value)
