"""What the tables have, and no client asked for."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Nothing exists that no call asked for, and nothing more often than asked")
