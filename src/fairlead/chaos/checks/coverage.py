"""Whether a run did what it is for: a run in which nothing happened breaks no rule."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "The run tried what it should")
