"""BullMQ as a delivery engine: Node workers run the jobs, on Redis or on BullMQ's PostgreSQL backend."""

from fairlead.integrations.bullmq.connection import BullmqOptions, connect

__all__ = ["OPTIONS", "connect"]

OPTIONS = BullmqOptions
