"""The database's own state of health."""

from dataclasses import dataclass
from datetime import datetime

from fairlead.db.sql import queries_beside
from fairlead.db.tx import Tx

sql = queries_beside(__file__)


@dataclass(frozen=True, slots=True)
class Facts:
    version_num: int
    version: str
    encoding: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    clock: datetime
    role: str


async def facts(tx: Tx) -> Facts:
    [found] = await tx.all(Facts, sql.facts)
    return found


async def missing_rights(tx: Tx) -> list[str]:
    """What the role may not do and would have to."""
    return [what for (what,) in await tx.values(sql.rights)]


async def audit_days(tx: Tx) -> int:
    """How many days, today included, the audit log is prepared for."""
    [(days,)] = await tx.values(sql.audit_days)
    return int(days)
