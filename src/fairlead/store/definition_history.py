"""What definitions were before they were changed."""

from uuid import UUID

from msgspec import to_builtins

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx, json_text
from fairlead.model.definition import Definition, DefinitionSpec
from fairlead.model.definition_history import DefinitionVersion

sql = queries_beside(__file__)

# The most versions that are kept of a definition.
MOST_KEPT = 100
_FIELDS = DefinitionSpec.__struct_fields__


async def add(tx: Tx, definition: Definition, *, actor: str) -> None:
    """Keep this version, and remove those that are too old."""
    spec = {name: to_builtins(getattr(definition, name)) for name in _FIELDS if name != "key"}
    of = {"definition_id": definition.id}
    values = {"version": definition.version, "spec": json_text(spec), "changed_by": actor}
    await tx.run(sql.add, of | values)
    await tx.run(sql.trim, of | {"most": MOST_KEPT})


async def list_newest(tx: Tx, definition_id: UUID, *, limit: int) -> list[DefinitionVersion]:
    """The newest versions, the newest first."""
    return await tx.all(DefinitionVersion, sql.newest, {"definition_id": definition_id, "limit": limit})
