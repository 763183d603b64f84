"""Debounced jobs: one waits for each key, until the key is quiet, with the last payload."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "A debounced job waits until its key is quiet, and has the last payload")
