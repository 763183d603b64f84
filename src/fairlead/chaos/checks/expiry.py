"""Jobs that must start in time. What expires is canceled, not before and not later."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "A job starts before it expires, or never")
