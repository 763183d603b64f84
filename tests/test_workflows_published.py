"""Workflows that are published: for whom, in which versions, under which keys."""

import asyncio
from typing import Any

import pytest

from fairlead import Fairlead, Flow
from fairlead.actions import definitions, workflows
from fairlead.errors import (
    PayloadInvalid,
    SignatureInvalid,
    WorkflowInvalid,
    WorkflowRunUnknown,
    WorkflowUnknown,
)
from fairlead.model.access import Principal, Role
from tests import given
from tests.given import OTHER, TENANT, TESTER
from tests.runs import (
    ANY,
    begun,
    diamond,
    end_all,
    published,
    states,
    succeeded,
)


@pytest.mark.thorough
async def test_a_published_workflow_is_for_every_tenant_and_a_tenants_own_comes_first(fl: Fairlead) -> None:
    shared = fl.workflow("onboard", input_schema={"type": "object", "required": ["email"]})
    shared.step("a", ANY, {"of": "all", "email": "{{input.email}}"})
    own = fl.workflow("onboard", tenant=OTHER)
    own.step("a", ANY, {"of": "other"})

    await fl.start("onboard", tenant=TENANT, input={"email": "x@example.com"})
    await fl.start(own, tenant=OTHER)

    payloads = [lease.payload for lease in await fl.claim(10)]
    assert {"of": "all", "email": "x@example.com"} in payloads
    assert {"of": "other"} in payloads
    with pytest.raises(PayloadInvalid, match="The input does not fit onboard") as caught:
        await fl.start("onboard", tenant=TENANT)
    assert caught.value.faults[0].path == "/input"
    with pytest.raises(WorkflowUnknown):
        await fl.start("offboard", tenant=TENANT)
    with pytest.raises(SignatureInvalid, match="two workflows"):
        fl.workflow("onboard")
    await end_all(fl)
    for run in await fl.database.transact(lambda tx: workflows.list_runs(tx, TESTER)):
        await fl.cancel_run(run.id)


async def test_the_same_text_is_the_same_version_and_another_is_the_next(fl: Fairlead) -> None:
    flow = Flow("w")
    flow.step("a", ANY, {"v": 1})

    async def put(document: Any) -> tuple[int, bool]:
        made, is_new = await fl.database.transact(lambda tx: workflows.publish(tx, TESTER, TENANT, document))
        return made.version, is_new

    assert await put(flow.document) == (1, True)
    assert await put(flow.document) == (1, False)
    run = await fl.start("w", tenant=TENANT)
    flow.step("b", ANY)
    together = await asyncio.gather(*(put(flow.document) for _ in range(4)))
    assert sorted(together) == [(2, False), (2, False), (2, False), (2, True)]
    assert await states(run) == {"a": "running"}
    assert await states(await fl.start("w", tenant=TENANT, version=1)) == {"a": "running"}
    assert await states(await fl.start("w", tenant=TENANT)) == {"a": "running", "b": "running"}
    await succeeded(fl)


async def test_a_workflow_of_unknown_definitions_is_refused(fl: Fairlead) -> None:
    fl.workflow("w").step("a", "no-such-thing")

    with pytest.raises(WorkflowInvalid, match="step 'a': there is no definition 'no-such-thing'"):
        await fl.start("w", tenant=TENANT)


async def test_one_key_has_one_run(fl: Fairlead) -> None:
    started = await asyncio.gather(*(begun(fl, diamond(), key="once") for _ in range(8)))

    assert len({run.id for run in started}) == 1
    assert sorted(run.deduplicated for run in started) == [False] + [True] * 7
    await fl.cancel_run(started[0].id)


async def test_another_tenants_runs_are_not_there(fl: Fairlead) -> None:
    run = await begun(fl, diamond())
    stranger = Principal("stranger", Role.TENANT_ADMIN, await given.tenant_id(fl, OTHER))
    for act in (workflows.show_run, workflows.cancel, workflows.retry):
        with pytest.raises(WorkflowRunUnknown):
            await fl.database.transact(lambda tx, act=act: act(tx, stranger, run.id))  # type: ignore[misc]
    assert await fl.database.transact(lambda tx: workflows.list_runs(tx, stranger)) == []
    await fl.cancel_run(run.id)


async def test_secrets_of_the_input_are_not_shown(fl: Fairlead) -> None:
    await fl.database.transact(
        lambda tx: definitions.patch(
            tx,
            TESTER,
            "locked",
            {
                "arg_schema": {
                    "type": "object",
                    "properties": {"password": {"type": "string", "writeOnly": True}},
                }
            },
        )
    )
    flow = Flow("w")
    flow.step("a", "locked", {"password": "{{input.who.word}}"})
    run = await begun(fl, flow, input={"who": {"word": "hunter2hunter2", "name": "Ada"}})

    shown = (await run.read()).run.input
    assert shown == {"who": {"word": "[redacted]", "name": "Ada"}}
    [lease] = await fl.claim()
    assert lease.payload == {"password": "hunter2hunter2"}
    await lease.succeed()


async def test_what_the_code_says_is_published_to_every_database_it_is_opened_on(fl: Fairlead) -> None:
    fl.workflow("w").step("a", ANY)
    await published(fl)
    async with fl.transaction() as tx:  # as if the next one were another
        await tx.run("delete from fairlead.workflows")

    await published(fl)

    run = await fl.start("w", tenant=TENANT)
    await succeeded(fl)
    assert await run.result(1) == {"a": {}}
