"""All mutants, a module for each part of the protocol."""

from tests.mutants.catalogue import (
    batches,
    claims,
    durable,
    enqueues,
    flow,
    leases,
    losses,
    records,
    triggers,
    workers,
    workflows,
)
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *leases.MUTANTS,
    *claims.MUTANTS,
    *losses.MUTANTS,
    *enqueues.MUTANTS,
    *flow.MUTANTS,
    *triggers.MUTANTS,
    *workflows.MUTANTS,
    *workers.MUTANTS,
    *batches.MUTANTS,
    *records.MUTANTS,
    *durable.MUTANTS,
)
