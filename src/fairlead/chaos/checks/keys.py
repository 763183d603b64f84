"""Limits by key: their bounds, their order, and what their strategies do to the jobs of a key.

`by_key` has the jobs of such definitions. `began` is when the call was made that asked for a job, and `known` when it surely
existed: when the call was answered, or the job was first claimed. `ended` is its first end.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "Limits by key hold, in order, and follow their strategies (I15)")
