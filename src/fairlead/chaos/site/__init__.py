"""The site of a run: PostgreSQL, the scenario in it, and processes that are started again when they end."""
