"""Prepare a database to be a cell, and find the databases of all cells."""

from typing import NamedTuple
from uuid import UUID

from fairlead.actions import cells as directory
from fairlead.db import migrate
from fairlead.db.database import Database
from fairlead.model.access import trusted_principal
from fairlead.settings import Settings, load


async def prepare_cell(url: str, schema: str, *, is_citus: bool = False) -> UUID:
    """Bring a database's schema up to date. The id of the cell that it is, whatever address leads to it."""
    settings = load({"database_url": url, "schema": schema, "citus": is_citus})
    await migrate.up(url, schema, citus=is_citus)
    async with Database(url, settings) as database:
        return await database.single(directory.read_own_id)


class CellAddress(NamedTuple):
    """The database of a cell. Its URL may have a password."""

    name: str
    url: str
    schema: str
    is_citus: bool

    def __repr__(self) -> str:
        return f"<cell {self.name}>"


async def list_other_cells(url: str, settings: Settings) -> list[CellAddress]:
    """The cells besides the home cell, which is at `url`."""
    principal = trusted_principal("cells")
    async with Database(url, settings) as database:
        found = await database.single(lambda tx: directory.list_all(tx, principal))
    return [
        CellAddress(cell.name, directory.resolve_url(cell.url), cell.schema_name, cell.is_citus)
        for cell in found
        if cell.url is not None
    ]
