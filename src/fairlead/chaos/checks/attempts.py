"""Attempt numbers, and which attempts were alive at the same time."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Attempts are numbered 1, 2, 3 …, and one is alive at a time (I3)")
