"""The outcome of each job: one, and the one that its handler had."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Each job has one outcome, which its last attempt had (I2)")
