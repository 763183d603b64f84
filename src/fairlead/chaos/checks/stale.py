"""Writes of owners that had lost their lease, and attacks."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "A stale owner changes nothing, and no attack is accepted (I4, I10)")
