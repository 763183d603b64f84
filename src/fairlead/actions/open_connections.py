"""How many long polls, sockets and followed logs server processes hold open for each tenant."""

from fairlead.store.open_connections import ConnectionQuota, QuotaStanding, remove_server, store_counts

__all__ = ["ConnectionQuota", "QuotaStanding", "remove_server", "store_counts"]
