"""The audit log: an entry for each change, in order, that nothing can change."""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Each change is in the audit log, which cannot be changed (I9)")
