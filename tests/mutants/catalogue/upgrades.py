"""Upgrades while everything runs: mutants that let processes of the earlier version notice."""

from tests.mutants.catalogue.runs import UPGRADES
from tests.mutants.mutant import Edit, Mutant

_FILE = "db/stored_functions.py"
_DROP = "drop function {name}; exception when dependent_objects_still_exist then null"

MUTANTS = (
    Mutant(
        name="functions_missing_for_a_moment",
        breaks=("I11",),
        wrong="An upgrade drops all stored functions, and creates them again one by one, while processes call them.",
        file=_FILE,
        old="        async with connection.transaction():\n            # bodies may name",
        new="        if True:\n            # bodies may name",
        more=(
            Edit(_FILE, '"set local check_function_bodies = off"', '"set check_function_bodies = off"'),
            Edit(
                _FILE,
                "            for one in changed:\n",
                "            for one in changed:\n"
                "                for name in await _list_signatures(connection, schema, one.name):\n"
                f'                    await connection.execute(f"do $$ begin {_DROP}; end $$".encode())\n'
                "            for one in changed:\n",
            ),
        ),
        catchers=(UPGRADES,),
        findings=("upgrade_noticed",),
    ),
)
