"""Find the tenants to move so that the cells carry the same load."""

from fairlead.actions import cells as directory
from fairlead.errors import CellUnknown, Fault
from fairlead.library.app import Fairlead
from fairlead.model.cells import TenantLoad
from fairlead.model.rebalance import CellTenants, PlannedMove, plan_moves

# The most tenants of a cell that are looked at: those that used most.
MOST_TENANTS = 10_000


async def plan_rebalance(fl: Fairlead, *, empty: str | None = None) -> list[PlannedMove]:
    """The moves that even out the cells' loads, or (with `empty`) leave a cell without tenants.

    A cell that is away gets and gives no tenants.
    """
    await fl.cells.refresh()
    if empty is not None and empty not in fl.cells.by_name:
        raise CellUnknown(
            f"There is no cell {empty[:80]!r}. List them with: fairlead cells list",
            [Fault("cell", "unknown")],
        )

    async def read(member: Fairlead) -> list[TenantLoad]:
        async with member.transaction() as tx:
            return await directory.list_tenant_loads(tx, member.principal, limit=MOST_TENANTS)

    answers = await fl.cells.gather(read)
    for answer in answers:
        if answer.cell == empty and answer.error is not None:
            raise answer.error
    return plan_moves(
        {
            answer.cell: CellTenants(answer.value, fl.cells.by_name[answer.cell].is_draining)
            for answer in answers
            if answer.value is not None and answer.cell in fl.cells.by_name
        },
        empty=empty,
    )
