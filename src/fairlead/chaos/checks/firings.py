"""Instants of schedules, and events, and the firings that each of them must have."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Each instant and each event is fired exactly once (I7, I8)")
