"""Jobs that end in a transaction of their handler."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "What a handler commits with its end is there exactly if the job succeeded")
