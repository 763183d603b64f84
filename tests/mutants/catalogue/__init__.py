"""All mutants, a module for each part of the protocol."""

from tests.mutants.catalogue import (
    batches,
    claims,
    deliveries,
    durable,
    enqueues,
    flow,
    leases,
    losses,
    options,
    records,
    secrets,
    transactions,
    triggers,
    turns,
    upgrades,
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
    *options.MUTANTS,
    *triggers.MUTANTS,
    *workflows.MUTANTS,
    *workers.MUTANTS,
    *batches.MUTANTS,
    *transactions.MUTANTS,
    *records.MUTANTS,
    *secrets.MUTANTS,
    *durable.MUTANTS,
    *deliveries.MUTANTS,
    *turns.MUTANTS,
    *upgrades.MUTANTS,
)
