"""Limits of tenants, definitions, definitions per tenant, and hosts.

The tables give each attempt the times of the database's clock:

- `started_at` is read in the claim after it has locked the limit and counted the leases, and before it commits.
- `finished_at` is read in the statement that deletes the lease, before it commits. That is so for ends that workers report
  and for leases that the watchdog takes back: both use the same statement.

So an attempt's [started_at, finished_at) begins and ends a little before its lease appears and disappears. The sweep over
these intervals raises no false alarm: take a moment, and of the attempts at that moment the one whose claim counted last.
All others at that moment ended later than this count, so their ends were not committed, and the claim saw their leases, or
knew that they may come (those of other slots of a large limit). The sweep may miss a breach shorter than a commit; the
samples, which count the leases themselves in one statement, are there for those.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "No limit is ever exceeded (I6)")
