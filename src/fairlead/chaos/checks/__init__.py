"""The checks of a run's history and tables, one module per family of rules."""

from fairlead.chaos.checks import (
    attempts,
    audit,
    coverage,
    dedupe,
    durable,
    firings,
    innocent,
    limits,
    lost,
    outcomes,
    processes,
    stale,
    unexpected,
    usage,
    workflows,
)

FAMILIES = (
    lost.FAMILY,
    unexpected.FAMILY,
    outcomes.FAMILY,
    attempts.FAMILY,
    stale.FAMILY,
    dedupe.FAMILY,
    limits.FAMILY,
    firings.FAMILY,
    audit.FAMILY,
    innocent.FAMILY,
    usage.FAMILY,
    workflows.FAMILY,
    durable.FAMILY,
    processes.FAMILY,
    coverage.FAMILY,
)
