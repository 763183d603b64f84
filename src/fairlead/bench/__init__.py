"""`fairlead bench`: one file per workload, each beside the raw limit of the same run."""

from fairlead.bench.bulk import bulk
from fairlead.bench.enqueue import enqueue
from fairlead.bench.run import Measure, Workload, run

WORKLOADS: dict[str, Workload] = {"enqueue": enqueue, "bulk": bulk}

__all__ = ["WORKLOADS", "Measure", "run"]
