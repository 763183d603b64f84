"""Batch handlers: which jobs come together."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "A batch has jobs of one tenant, and no more than it may have")
