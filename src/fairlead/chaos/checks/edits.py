"""Jobs that were changed while they waited."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "An edit that was acknowledged counts, and a refused one does not")
