"""Workflow runs: each ends, each step succeeds once, and no step begins before those it waits for."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Each workflow run ends, and each step has one job that begins when it may")
