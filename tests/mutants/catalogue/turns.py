"""Turns of tenants in a process, and work that is done in parts: mutants that let one tenant hold up others, or lose the rest."""

from tests.mutants.mutant import Mutant, Suite

_LOOP = Suite(("tests/turns/test_loop.py",))
_SHARED = Suite(("tests/turns/test_shared.py", "tests/turns/test_connections.py"))
_BODIES = Suite(("tests/server/test_body_limits.py",))
_DISPATCH = Suite(("tests/actions/test_dispatch.py",))
_LEFT_STEPS = Suite(("tests/test_workflow_faults.py",))

MUTANTS = (
    Mutant(
        name="steps_without_turns",
        breaks=("I18",),
        wrong="Steps of requests run whenever they can, whatever their tenant has used of the event loop.",
        file="turns/loop.py",
        old="        return bool(self._waiting) or self._held >= PASS_SECONDS\n",
        new="        return False\n",
        catchers=(_LOOP,),
    ),
    Mutant(
        name="weight_of_owners_ignored",
        breaks=("I18",),
        wrong="Owners share the event loop equally, whatever their weights.",
        file="turns/loop.py",
        old="            queue.used += seconds / queue.weight\n",
        new="            queue.used += seconds\n",
        catchers=(_LOOP,),
    ),
    Mutant(
        name="flood_takes_all_connections",
        breaks=("I18",),
        wrong="An owner may hold all that is free, and leaves nothing for others.",
        file="turns/shared.py",
        old="        return held + amount <= owner.weight * free and amount < free\n",
        new="        return amount <= free\n",
        catchers=(_SHARED,),
    ),
    Mutant(
        name="small_requests_pass_large_ones",
        breaks=("I18",),
        wrong="Small requests pass a large one of an owner that has nothing, which may wait for ever.",
        file="turns/shared.py",
        old="        if owner in self._waiting or self._must_let_pass() or not self._may_take(owner, amount):\n",
        new="        if owner in self._waiting or not self._may_take(owner, amount):\n",
        catchers=(_SHARED,),
    ),
    Mutant(
        name="canceled_turn_is_kept",
        breaks=("I18",),
        wrong="A request that is canceled just when its turn comes never gives back what it was granted.",
        file="turns/shared.py",
        old="            if request.turn.done() and not request.turn.cancelled():\n                self.give_back(owner, amount)\n            else:\n",
        new="            if not request.turn.done() or request.turn.cancelled():\n",
        catchers=(_SHARED,),
    ),
    Mutant(
        name="values_of_bodies_not_weighed",
        breaks=("I18",),
        wrong="A body is weighed by its bytes alone, although its values take many times that in memory.",
        file="server/body_limits.py",
        old="        cost = len(text) + VALUE_BYTES * values\n",
        new="        cost = len(text)\n",
        catchers=(_BODIES,),
    ),
    Mutant(
        name="memory_of_bodies_kept",
        breaks=("I18",),
        wrong="What a body took is not given back at the end of its request.",
        file="server/body_limits.py",
        old="            memory.give_back()\n",
        new="            pass\n",
        catchers=(_BODIES,),
    ),
    Mutant(
        name="rest_of_an_event_dropped",
        breaks=("I8",),
        wrong="An event counts as dispatched after the first part of its triggers.",
        file="actions/dispatch.py",
        old="        if not aim.is_part and aim.event.id not in unheard\n",
        new="        if aim.event.id not in unheard\n",
        catchers=(_DISPATCH,),
    ),
    Mutant(
        name="rest_of_an_event_fired_again",
        breaks=("I8",),
        wrong="Each part of an event begins with its first trigger again.",
        file="actions/dispatch.py",
        old="    if not there:\n        return list(aims)\n",
        new="    if there or not there:\n        return list(aims)\n",
        catchers=(_DISPATCH,),
    ),
    Mutant(
        name="rounds_lock_keys_in_any_order",
        breaks=("I18",),
        wrong="Rounds of events lock the keys of jobs in the order of the events, and deadlock.",
        file="actions/firing.py",
        old="    return sorted(range(len(loads)), key=lambda place: (order.get(place, ()), place))\n",
        new="    return sorted(order, key=lambda place: place) + [place for place in range(len(loads)) if place not in order]\n",
        catchers=(_DISPATCH,),
    ),
    Mutant(
        name="left_step_found_by_nobody",
        breaks=("I1",),
        wrong="A step that is left because it is much work is marked as taken before its jobs are made, and never made.",
        file="actions/workflow_progress.py",
        old="        await advance_runs(tx, begun, alone=True)\n",
        new="        pass\n",
        catchers=(_LEFT_STEPS,),
    ),
    Mutant(
        name="left_steps_of_one_tenant_first",
        breaks=("I18",),
        wrong="All steps of much work of one tenant come before those of the others.",
        file="store/workflows.sql",
        old="order by s.tenant_id <= %(after)s, s.tenant_id, s.left_at limit 1\n",
        new="order by s.tenant_id <= '00000000-0000-0000-0000-000000000000' and %(after)s::uuid is not null, s.tenant_id, s.left_at limit 1\n",
        catchers=(_LEFT_STEPS,),
    ),
)
