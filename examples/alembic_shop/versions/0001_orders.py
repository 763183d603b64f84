"""The shop's own table."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    op.create_table("alembic_orders", sa.Column("id", sa.Integer, primary_key=True))


def downgrade() -> None:
    op.drop_table("alembic_orders")
