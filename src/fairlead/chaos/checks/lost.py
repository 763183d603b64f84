"""What clients were told is done, and the tables do not have."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Nothing that was acknowledged is lost (I1)")
