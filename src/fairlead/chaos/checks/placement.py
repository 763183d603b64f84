"""Which worker runs a job, and how many of its slots are taken."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "A job runs on a worker with its labels, which has the slots for it")
