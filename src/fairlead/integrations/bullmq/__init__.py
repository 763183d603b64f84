"""BullMQ as a delivery engine: Node workers run the jobs, on Redis or on BullMQ's PostgreSQL backend."""

from fairlead.integrations.bullmq.connection import connect

__all__ = ["connect"]
