"""Dedupe keys.

A key is taken in the transaction that enqueues the job, and freed in the one that ends it; `queued_at` is read before the
wait for the key, so it may be earlier than the end of the job that had the key before. What is known: the job was active
when its enqueue was acknowledged (as the client's clock says), and when its first attempt was claimed. A retry by hand takes
the key again, before its entry in the audit log is written.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "At most one active job per tenant and dedupe key (I5)")
