"""`fairlead bench`: one file per workload or group of workloads, most compared with a limit of the same run."""

from fairlead.bench import (
    agents,
    bulk,
    cells,
    clients,
    commands,
    console,
    drain,
    enqueue,
    fair,
    history,
    http,
    idle,
    latency,
    limited,
    live,
    pinned,
    schedules,
    summary,
    tenants,
    workflows,
)
from fairlead.bench.run import Measure, Workload, run

WORKLOADS: dict[str, Workload] = {
    "enqueue": enqueue.measure,
    "clients": clients.measure,
    "bulk": bulk.measure,
    "drain": drain.measure,
    "drain2": drain.measure_two,
    "latency": latency.measure,
    "http": http.measure,
    "finished": history.measure_finished,
    "later": history.measure_later,
    "tenants": tenants.measure,
    "limited": limited.measure,
    "pinned": pinned.measure,
    "fair": fair.measure,
    "idle": idle.measure,
    "summary": summary.measure,
    "live": live.measure,
    "console": console.measure,
    "commands": commands.measure,
    "schedules": schedules.measure,
    "events": schedules.measure_events,
    "workflows": workflows.measure,
    "agents": agents.measure,
    "cells": cells.measure,
}

__all__ = ["WORKLOADS", "Measure", "run"]
