"""Upgrades while everything runs."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Processes of both versions go on during an upgrade")
