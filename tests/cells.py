"""Cells for tests: more databases of the test process's server."""

from uuid import uuid4

import psycopg

from fairlead import Fairlead
from fairlead.actions import cells as directory
from fairlead.db.scratch import replace_database


def create_cell(server: str, migrated: str) -> str:
    """The URL of a migrated database without tenants, which is a cell of its own."""
    name = f"cell_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template {migrated} strategy file_copy".encode())
    url = replace_database(server, name)
    with psycopg.connect(url, autocommit=True) as connection:
        # a copy of a database is another cell
        connection.execute("update fairlead.system set cell_id = gen_random_uuid()")
    return url


def drop_cell(server: str, url: str) -> None:
    """Drop the database of a cell."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())


async def add_cell(fl: Fairlead, name: str, url: str) -> None:
    """Add a migrated database to the directory."""
    with psycopg.connect(url) as connection:
        [(cell_id,)] = connection.execute("select cell_id from fairlead.system").fetchall()
    async with fl.transaction() as tx:
        await directory.add(tx, fl.principal, name=name, cell_id=cell_id, url=url, schema="fairlead")
    await fl.cells.refresh()
