"""Alembic's environment: everything but Fairlead's schema is compared with the models."""

import os

from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, create_engine

from fairlead.integrations.alembic import include_name

metadata = MetaData()
Table("alembic_orders", metadata, Column("id", Integer, primary_key=True))

url = os.environ["FAIRLEAD_DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://", 1)
engine = create_engine(url)
with engine.connect() as connection:
    context.configure(connection, target_metadata=metadata, include_schemas=True, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
