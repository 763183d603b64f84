"""Secrets of jobs and commands: which value each attempt got, and where they are stored."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(
    __file__, "An attempt gets the current value of its own secret, and no secret is shown (I14)"
)
