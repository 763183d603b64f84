"""Runs one attempt of a job. Does not use the database."""
