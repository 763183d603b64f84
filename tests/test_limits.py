"""Limits in the library, asynchronous and synchronous."""

import pytest

from fairlead import Fairlead, KeyLimit, Rate
from fairlead import sync as synchronous
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


def test_code_overwrites_only_what_it_declares(database_url: str) -> None:
    def deploy(
        *, timeout: int | None = None, rate: Rate | None = None, by_key: KeyLimit | None = None
    ) -> None:
        app = synchronous.Fairlead(database_url)

        @app.job(key="mail", timeout=timeout, rate=rate, by_key=by_key)
        def send() -> None: ...

        with app:
            pass

    deploy(timeout=5)
    with synchronous.Fairlead(database_url) as fl:
        fl.set_rate("10/min", definition="mail")
        deploy(timeout=6)  # declares no rate: the operator's stays
        [kept] = fl.limits()
        assert kept.rate == Rate(10, 60)
        deploy(rate=Rate(1), by_key=KeyLimit("/to", max_running=1))
        assert [one.rate or one.by_key for one in fl.limits()] == [Rate(1), KeyLimit("/to", max_running=1)]
