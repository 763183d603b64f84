"""Limits in the library."""

import pytest

from fairlead import Fairlead, Rate
from fairlead.errors import InvalidInput


async def test_rates_are_set_listed_and_removed(fl: Fairlead) -> None:
    assert await fl.limits() == []
    assert await fl.set_rate("100/min+20") == Rate(100, 60, 20)
    await fl.set_rate(Rate(1), tenant="acme")
    await fl.set_rate(Rate(2), definition="greet")
    await fl.set_rate("1/h", definition="greet", each_tenant=True)
    scopes = [one.scope.value for one in await fl.limits()]
    assert scopes == ["system", "tenant", "definition", "definition_tenant"]
    assert [one.scope.value for one in await fl.limits("umbrella")] == [
        "system",
        "definition",
        "definition_tenant",
    ]
    await fl.set_rate(None)
    assert len(await fl.limits()) == 3
    with pytest.raises(InvalidInput):
        await fl.set_rate("often")
