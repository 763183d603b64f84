"""Processes that ended by themselves."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "No process of Fairlead ends by itself or leaves processes behind")
