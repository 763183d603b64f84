"""Reports of engines count only for the attempts that they carry: mutants that believe others."""

from tests.mutants.mutant import Mutant, Suite

OWNERS = "store/handovers.sql"
_BRIDGE = Suite(("tests/runtime/test_engine_bridge.py",))

MUTANTS = (
    Mutant(
        name="report_without_secret",
        breaks=("I10",),
        wrong="A report on an attempt counts although it has neither the lease's token nor the secret.",
        file=OWNERS,
        old="    and (h.token = o.token or left(encode(sha256(uuid_send(h.token)), 'hex'), %(digits)s) = o.secret)\n",
        new="    and %(digits)s > 0\n",
        catchers=(_BRIDGE,),
    ),
    Mutant(
        name="report_of_another_queue",
        breaks=("I10",),
        wrong="A report from one queue counts for an attempt in another.",
        file=OWNERS,
        old="    and h.queue = coalesce(o.queue, h.queue)\n",
        new="",
        catchers=(_BRIDGE,),
    ),
    Mutant(
        name="report_of_another_engine",
        breaks=("I10",),
        wrong="A report of one engine counts for an attempt that another carries.",
        file=OWNERS,
        old=" and h.engine = %(engine)s\n    and h.queue",
        new=" and %(engine)s::text is not null\n    and h.queue",
        catchers=(_BRIDGE,),
    ),
)
