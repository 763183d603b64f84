"""Durable functions: what ran, what was recorded, and what the function got.

A step is recorded while its attempt's lease is locked, with a time that is read before the commit: the next attempt is claimed
after that. A process that was stopped for longer than its lease may run a step which a later attempt has recorded meanwhile;
what it reports is refused, so only runs of later attempts count as repetitions.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(
    __file__, "A recorded step never runs again, and only the owner of the job records (I16)"
)
