"""Jobs that were charged for what they did not do.

A failure is charged if the handler failed. The loss of a worker is charged to a job only if it was the worker's only job;
three of them make it a dead letter. If a fault kills a worker while it runs one job alone, the system cannot tell that job
from one that kills its worker: such jobs are counted, and they are no violation if faults hit the workers of three or more of
their lost attempts. That the job was alone then is not checked.
"""

from fairlead.chaos.checks.family import read_family

FAMILY = read_family(__file__, "No job is charged or condemned for what it did not do (I12, I19)")
