"""The tenant's role may call every function that the functions which it may call use."""

import re

from fairlead.db.tx import Tx

# a function with the owner's rights calls others with these, too
CALLABLE = """
select p.proname, p.prosrc from pg_proc p
where p.pronamespace = 'fairlead'::regnamespace and not p.prosecdef and has_function_privilege('fairlead_tenant', p.oid, 'execute')
"""
NOT_CALLABLE = """
select p.proname from pg_proc p
where p.pronamespace = 'fairlead'::regnamespace and not has_function_privilege('fairlead_tenant', p.oid, 'execute')
"""


async def test_no_function_of_the_tenants_role_calls_one_that_is_closed_to_it(tx: Tx) -> None:
    closed = {name for (name,) in await tx.values(NOT_CALLABLE)}
    calls = {
        f"{name} calls {called}"
        for name, source in await tx.values(CALLABLE)
        for called in re.findall(r"fairlead\.(\w+)\(", source)
        if called in closed
    }
    assert calls == set()
