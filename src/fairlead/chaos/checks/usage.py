"""Usage and counts against attempts and jobs."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Usage, counts and the queue agree with jobs and attempts")
