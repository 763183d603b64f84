"""The routes of /api/v1: each declares what it requires, and calls one action."""
