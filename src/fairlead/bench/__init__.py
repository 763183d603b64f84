"""`fairlead bench`: one file per workload, each beside the raw limit of the same run."""

from fairlead.bench import bulk, drain, enqueue, latency
from fairlead.bench.run import Measure, Workload, run

WORKLOADS: dict[str, Workload] = {
    "enqueue": enqueue.measure,
    "bulk": bulk.measure,
    "drain": drain.measure,
    "drain2": drain.measure_two,
    "latency": latency.measure,
}

__all__ = ["WORKLOADS", "Measure", "run"]
