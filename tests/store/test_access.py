"""Sessions and idempotency keys that are over are forgotten, by the watchdog's duty."""

from fairlead.db.database import Database
from fairlead.runtime.duties import Duties
from tests import given


async def test_what_has_expired_is_forgotten_after_a_day(db: Database) -> None:
    async with db.transaction() as tx:
        await given.rest_from_duties(tx, but=["expired"])
        await tx.run(
            "insert into fairlead.users (email, password_hash, role) values ('a@b', '', 'super_admin')"
        )
        for hours in (-25, -23, 1):
            await tx.run(
                "insert into fairlead.sessions (secret_hash, user_id, expires_at) "
                "select %(hours)s::text::bytea, id, now() + %(hours)s * interval '1 hour' from fairlead.users",
                {"hours": hours},
            )
            await tx.run(
                "insert into fairlead.idempotency_keys (scope_id, key, body_hash, created_at) "
                "values (gen_random_uuid(), 'k', '', now() + least(%s, 0) * interval '1 hour')",
                [hours],
            )

    await Duties(db, retention_days=30, audit_retention_days=365)()

    async with db.transaction() as tx:
        assert await given.count(tx, "sessions") == 2
        assert await given.count(tx, "idempotency_keys") == 2
        assert await tx.values("select from fairlead.duties where due_at <= clock_timestamp()") == []
