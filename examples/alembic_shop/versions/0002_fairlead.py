"""Fairlead's schema. After an upgrade of Fairlead, add another revision with the same line."""

from alembic import op

from fairlead.integrations.alembic import upgrade_schema

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    upgrade_schema(op.get_bind())


def downgrade() -> None:
    """Nothing: a downgrade must not delete jobs. To remove Fairlead, drop its schema."""
