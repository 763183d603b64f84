"""The oldest PostgreSQL that Fairlead runs on."""

from fairlead.errors import DatabaseRefused

# Views with security_invoker, which obey row-level security, came with PostgreSQL 15.
OLDEST_MAJOR = 15


def require_supported(server_version: int) -> None:
    """Refuse a server that is too old; its version is the number that libpq gives, such as 150004."""
    major = server_version // 10000
    if major < OLDEST_MAJOR:
        raise DatabaseRefused(
            f"PostgreSQL {major} is too old: Fairlead needs PostgreSQL {OLDEST_MAJOR} or later. Nothing was changed; "
            "upgrade the server."
        )
