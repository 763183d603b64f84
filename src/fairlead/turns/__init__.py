"""Turns of owners, which are tenants or clients that have not signed in, at what all of them share in a process."""
