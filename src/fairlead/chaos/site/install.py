"""Install the scenario in the run's database: tenants, definitions, triggers, a host with its agent, and tokens."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from fairlead.actions import access, commands, definitions, encryption, hosts, tenants, triggers
from fairlead.chaos import scenario
from fairlead.chaos.load.attempt_records import SOON
from fairlead.chaos.load.commits import create_commits_table
from fairlead.chaos.load.order_calls import create_orders_table
from fairlead.chaos.scenario import DefinitionPlan
from fairlead.chaos.site.access import RunAccess
from fairlead.db.tx import Tx
from fairlead.library.app import Fairlead
from fairlead.model.access import Role
from fairlead.model.quota import Quota
from fairlead.runtime.enrolment import Enrolment, save_enrolment

# A run has more jobs than a tenant has by default, and what it tests is not its quotas.
QUOTAS: Mapping[str, int] = {
    Quota.QUEUED_JOBS: 100_000_000,
    Quota.STORED_BYTES: 1 << 40,
    Quota.LONG_POLLS: 1000,
}


async def install_scenario(fl: Fairlead, *, servers: list[str], agents: Mapping[str, Path]) -> RunAccess:
    """Install everything, with secrets encrypted; `agents` are the names and the state folders of the agents to enrol at the first server."""
    await fl.database.transact(lambda tx: encryption.enable(tx, fl.principal))
    for slug in (*scenario.TENANTS, scenario.HOSTILE):
        await fl.add_tenant(slug, max_running=scenario.TENANT_LIMITS.get(slug), quotas=QUOTAS)
    await fl.database.transact(lambda tx: _add_definitions(tx, fl))
    await fl.database.transact(lambda tx: _add_triggers(tx, fl))
    await fl.database.transact(create_orders_table)
    await fl.database.transact(create_commits_table)
    return await fl.database.transact(lambda tx: _add_access(tx, fl, servers, agents))


async def _add_definitions(tx: Tx, fl: Fairlead) -> None:
    specs = [command.spec for command in fl.commands.values()]
    await commands.sync_commands(tx, fl.principal, specs)
    for plan in scenario.DEFINITIONS:
        await definitions.patch(tx, fl.principal, plan.key, _build_definition(plan))


def _build_definition(plan: DefinitionPlan) -> dict[str, Any]:
    """The fields of a definition. Workers over HTTP do not publish theirs; others have said how long they back off."""
    backoff = {"backoff": asdict(SOON)} if plan.runner in ("http", "typescript") else {}
    return {
        "max_running": plan.max_running,
        "max_running_per_tenant": plan.max_running_per_tenant,
        "max_attempts": plan.max_attempts,
        "timeout_seconds": int(plan.timeout_seconds),
        **backoff,
    }


async def _add_triggers(tx: Tx, fl: Fairlead) -> None:
    for tenant in scenario.TENANTS:
        for label in scenario.SCHEDULES:
            await triggers.create(
                tx,
                fl.principal,
                tenant,
                {
                    "label": label,
                    "trigger_type": "schedule",
                    "every_seconds": scenario.CLOCK_SECONDS,
                    "jitter_seconds": scenario.JITTER_SECONDS if label == scenario.JITTERED else 0,
                    "definition_key": scenario.ON_TIME,
                    "catch_up": "all",
                    "overlap": "allow",
                },
            )
        await triggers.create(
            tx,
            fl.principal,
            tenant,
            {
                "label": scenario.EVENT_TRIGGER,
                "trigger_type": "event",
                "event_name": scenario.EVENT_TYPE,
                "definition_key": scenario.ON_EVENT,
                "dedupe_window_seconds": 0,
            },
        )


async def _add_access(tx: Tx, fl: Fairlead, servers: list[str], agents: Mapping[str, Path]) -> RunAccess:
    ids = {}
    tokens = {}
    for slug in (*scenario.TENANTS, scenario.HOSTILE):
        tenant = await tenants.find(tx, fl.principal, slug)
        if tenant is None:
            raise AssertionError(slug)
        ids[slug] = tenant.id
        made = await access.create_token(
            tx, fl.principal, name="chaos", role=Role.TENANT_ADMIN, tenant_id=tenant.id
        )
        tokens[slug] = made.secret
    worker = await access.create_token(
        tx, fl.principal, name="chaos worker", role=Role.WORKER, tenant_id=None
    )
    host = await hosts.add(
        tx,
        fl.principal,
        tenant_id=ids[scenario.TENANTS[0]],
        name=scenario.HOST,
        max_running=scenario.HOST_LIMIT,
    )
    for folder in agents.values():
        code = await hosts.create_enrolment_code(tx, fl.principal, host.id)
        enrolled = await hosts.enrol(tx, code.code)
        save_enrolment(
            folder,
            Enrolment(
                server=servers[0],
                host_id=host.id,
                host=host.name,
                token=enrolled.secret,
                since=datetime.now(UTC),
            ),
        )
    return RunAccess(servers, tokens, worker.secret, host.id)


def write_access(file: Path, given: RunAccess) -> None:
    """Write the file that clients read; only this user can read it."""
    file.touch(mode=0o600)
    file.write_bytes(msgspec.json.encode(given))
