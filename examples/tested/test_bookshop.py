"""Its tests: the fixtures are those of Fairlead's pytest plugin, on a new database for each test."""

from collections.abc import Callable
from typing import Any

import pytest
from bookshop import check_out, report, send_receipt

from fairlead import Fairlead

Helper = Callable[..., Any]


async def test_checking_out_sends_a_receipt(assert_enqueued: Helper, run_due: Helper) -> None:
    await check_out("ada@example.org", tenant="test")

    await assert_enqueued(send_receipt, payload={"to": "ada@example.org"}, count=1)
    assert (await run_due()).statuses == {"succeeded": 1}


async def test_a_tenant_has_only_its_own(fairlead: Fairlead, assert_not_enqueued: Helper) -> None:
    await fairlead.add_tenant("other")
    await check_out("ada@example.org", tenant="other")

    await assert_not_enqueued(send_receipt, tenant="test")


async def test_a_receipt_has_the_price(run_job: Helper) -> None:
    output = await run_job(send_receipt, {"to": "ada@example.org", "cents": 1999})
    assert output == "ada@example.org has paid 19.99"


async def test_a_price_of_nothing_is_an_error(run_job: Helper) -> None:
    with pytest.raises(ValueError, match="no price"):
        await run_job(send_receipt, {"to": "ada@example.org", "cents": 0})


async def test_the_report_of_the_night(fire_schedules: Helper, run_due: Helper) -> None:
    await fire_schedules(report)
    assert (await run_due(raise_errors=True)).ran == 1
