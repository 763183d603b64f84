"""The tools of the MCP server, called with the SDK's client over the whole API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fairlead.actions import definitions
from fairlead.model.access import GRANTS, Role
from fairlead.server.mcp import reads, tools
from fairlead.server.mcp.bounds import LONGEST_JSON, LONGEST_LINE, LONGEST_LOG, MOST_BYTES
from tests import given
from tests.acting import act
from tests.server.mcp_clients import call, client_of, refusal
from tests.server.test_errors_api import fail
from tests.server.test_logs import say
from tests.server.test_worker_api import claimed, enqueued, tell
from tests.server.world import World
from tests.tables import each_case

if TYPE_CHECKING:
    from mcp import Client

READS = {one.name for one in tools.TOOLS if not one.writes}
WRITES = {one.name for one in tools.TOOLS if one.writes}
SECRET = "hunter2-not-to-be-seen"  # noqa: S105


async def names(client: Client) -> set[str]:
    return {one.name for one in (await client.list_tools()).tools}


async def enqueue(world: World, tenant: str = "acme", **fields: Any) -> str:
    body = {"definition_key": "greet", "payload": {"name": "Ada"}, **fields}
    made = await world.call("POST", "/jobs", tenant=tenant, json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


async def define(world: World, **fields: Any) -> None:
    await act(world.fl, definitions.patch, given.TESTER, str(fields["key"]), fields)


# What is offered


async def test_a_server_offers_only_tools_that_read_unless_writes_are_allowed(world: World) -> None:
    async with client_of(world, "super_admin") as client:
        assert await names(client) == READS


@each_case("role", ["viewer", "operator", "tenant_admin", "super_admin", "application"])
async def test_a_token_is_offered_the_tools_that_its_role_permits(shared_world: World, role: str) -> None:
    allowed = GRANTS[Role(role)]

    async with client_of(shared_world, role, allow_writes=True) as client:
        offered = await names(client)

    assert offered == {one.name for one in tools.TOOLS if one.permission is None or one.permission in allowed}
    assert ("enqueue_job" in offered) == (role != "viewer")
    assert ("pause_definition" in offered) == (role == "super_admin")


async def test_the_token_of_a_worker_can_only_ask_who_it_is(world: World) -> None:
    async with client_of(world, "worker", allow_writes=True) as client:
        assert await names(client) == {"show_access"}
        assert (await call(client, "show_access"))["role"] == "worker"
        assert (await refusal(client, "list_jobs"))["code"] == "forbidden"


async def test_every_tool_says_what_it_does_and_has_schemas_without_references(world: World) -> None:
    async with client_of(world, "super_admin", allow_writes=True) as client:
        offered = (await client.list_tools()).tools

    assert {one.name for one in offered} == READS | WRITES
    for one in offered:
        assert one.title
        assert one.description
        assert one.annotations is not None
        assert one.annotations.read_only_hint == (one.name in READS)
        assert one.annotations.open_world_hint == (one.name in WRITES)
        assert one.output_schema is not None
        assert one.input_schema["additionalProperties"] is False
        assert "tenant" in one.input_schema["properties"]
        assert "$ref" not in str([one.input_schema, one.output_schema])
    destructive = {one.name for one in offered if one.annotations and one.annotations.destructive_hint}
    assert destructive == {"cancel_job", "pause_definition", "retry_error_group"}


async def test_a_revoked_token_is_refused_with_its_code(world: World) -> None:
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415

    async with client_of(world, "revoked") as client:
        assert (await refusal(client, "list_jobs"))["code"] == "unauthenticated"
        with pytest.raises(MCPError, match="unauthenticated: This token is unknown, expired or revoked"):
            await client.list_tools()


# Reading


async def test_jobs_are_listed_by_filters_and_page_by_page(world: World) -> None:
    first = await enqueue(world, tags=["nightly"])
    second = await enqueue(world, payload={"name": "Grace", "n": 7})
    third = await enqueue(world, definition_key="anything", payload={})

    async with client_of(world) as client:
        page = await call(client, "list_jobs", limit=2)
        rest = await call(client, "list_jobs", limit=2, cursor=page["next_cursor"])
        tagged = await call(client, "list_jobs", tags=["nightly"], status=["queued", "running"])
        found = await call(client, "list_jobs", payload_contains={"n": 7}, definition_key="greet")
        none = await call(client, "list_jobs", status=["dead_letter"], waiting_for=None)

    assert [one["id"] for one in (*page["items"], *rest["items"])] == [third, second, first]
    assert rest["next_cursor"] is None
    assert [one["id"] for one in tagged["items"]] == [first]
    assert [one["id"] for one in found["items"]] == [second]
    assert none["items"] == []
    assert "payload" not in page["items"][0]


async def test_a_job_is_shown_with_its_newest_attempts_and_why_it_waits(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    await tell(
        world,
        item,
        "fail",
        error={"type": "Broken", "message": "it broke"},
        stderr_tail="Traceback\n" + "x" * 5000,
    )

    async with client_of(world) as client:
        job = await call(client, "show_job", job_id=str(job_id))
        why = await call(client, "explain_job", job_id=str(job_id))

    [attempt] = job["attempts"]
    assert (job["status"], job["failure_count"], attempt["status"]) == ("queued", 1, "failed")
    assert "it broke" in attempt["error_text"]
    assert attempt["stderr_tail"].endswith("x" * 100)
    assert len(attempt["stderr_tail"]) < 2200
    assert why["reasons"][0]["code"] == "backing_off"
    assert why["reasons"][0]["message"]


async def test_of_many_attempts_the_last_five_are_shown(world: World) -> None:
    job_id = await enqueued(world)
    for _ in range(7):
        assert (await tell(world, await claimed(world), "release")).is_success

    async with client_of(world) as client:
        job = await call(client, "show_job", job_id=str(job_id))

    assert [one["attempt_no"] for one in job["attempts"]] == [3, 4, 5, 6, 7]


async def test_long_values_are_cut_and_secrets_masked(world: World) -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string", "x-secret": True}}}
    await define(world, key="login", arg_schema=schema)
    job_id = await enqueue(
        world, definition_key="login", payload={"password": SECRET, "note": "n" * 2 * LONGEST_JSON}
    )
    short = await enqueue(world, definition_key="login", payload={"password": SECRET})

    async with client_of(world) as client:
        long = await call(client, "show_job", job_id=job_id)
        whole = await call(client, "show_job", job_id=short)
        compared = await refusal(
            client, "list_jobs", definition_key="login", payload_contains={"password": SECRET}
        )

    assert long["payload"]["truncated"] is True
    assert long["payload"]["characters"] > 2 * LONGEST_JSON
    assert len(long["payload"]["beginning"]) == LONGEST_JSON
    assert whole["payload"] == {"password": "[redacted]"}
    assert compared["code"] == "filter_on_secret"
    assert SECRET not in str([long, whole, compared])


async def test_a_long_log_is_read_in_parts_that_make_the_whole(world: World) -> None:
    job_id = await enqueued(world)
    item = await claimed(world)
    said = [f"{number}:" + "a" * 7_000 for number in range(8)]
    for number, text in enumerate(said):
        await say(world, item, text, start=number)
    await tell(world, item, "complete")

    read: list[str] = []
    async with client_of(world) as client:
        part = await call(client, "read_job_logs", job_id=str(job_id))
        while True:
            texts = [one["text"] for one in part["items"]]
            assert sum(map(len, texts)) <= LONGEST_LOG
            read += texts
            if part["complete"]:
                break
            part = await call(client, "read_job_logs", job_id=str(job_id), cursor=part["next_cursor"])

    assert read == said


async def test_a_chunk_that_is_longer_than_a_part_is_cut() -> None:
    chunk = {"attempt_no": 1, "seq": 0, "text": "a" * (LONGEST_LOG + 5)}
    after = {"attempt_no": 1, "seq": 1, "text": "b"}

    cut = reads._cut_log({"items": [chunk, after], "next_cursor": None, "complete": True})

    assert (cut["next_cursor"], cut["complete"]) == ("1.0", False)
    assert [one["text"][-22:] for one in cut["items"]] == ["a… [5 more characters]"]


async def test_dead_letters_are_listed_in_groups_and_shown_with_a_sample(world: World) -> None:
    await fail(world, "E: 1\nat line 7", "E: 2\nat line 7", "Other " + "x" * 1000)
    await fail(world, "Final", status="failed")

    async with client_of(world) as client:
        groups = (await call(client, "list_error_groups", order="jobs"))["items"]
        failed = (await call(client, "list_error_groups", status="failed"))["items"]
        both = (await call(client, "list_error_groups", status=None))["items"]
        shown = await call(client, "show_error_group", group_id=groups[0]["id"])

    assert (groups[0]["pattern"], groups[0]["dead_letter"], len(groups)) == ("E: <n>", 2, 2)
    assert all(len(one["pattern"]) < LONGEST_LINE + 40 for one in groups)
    assert [one["pattern"] for one in failed] == ["Final"]
    assert len(both) == 3
    assert shown["sample"] == "E: 2\nat line 7"
    assert [one["failures"] for one in shown["hours"]] == [2]


async def test_definitions_are_listed_and_shown_with_their_schema(world: World) -> None:
    async with client_of(world) as client:
        page = await call(client, "list_definitions", limit=1)
        rest = await call(client, "list_definitions", cursor=page["next_cursor"])
        shown = await call(client, "show_definition", definition_key="greet")
        unknown = await refusal(client, "show_definition", definition_key="nope")

    assert page["items"][0]["key"] == "anything"
    assert "greet" in [one["key"] for one in rest["items"]]
    assert shown["arg_schema"]["required"] == ["name"]
    assert unknown["code"] == "definition_unknown"
    assert "list_definitions" in unknown["detail"]


async def test_the_overview_the_depth_and_the_times_are_those_of_the_tenant(world: World) -> None:
    await enqueue(world)
    await enqueue(world, "umbrella")
    await fail(world, "E")

    async with client_of(world) as client:
        overview = await call(client, "show_overview")
        depth = await call(client, "show_queue_depth")
        times = await call(client, "show_job_times")

    assert (overview["tenant"], overview["verdict"], overview["counts"]["queued"]) == ("acme", "fail", 1)
    assert "no_worker" in {one["kind"] for one in overview["problems"]}
    [line] = depth["items"]
    assert (line["tenant"], line["queued"], line["dead_letter"]) == ("acme", 1, 1)
    assert line["oldest_queued_seconds"] >= 0
    assert times["jobs"] == 1


async def test_a_super_admin_sees_all_tenants_or_the_one_that_is_named(world: World) -> None:
    own, other = await enqueue(world), await enqueue(world, "umbrella")

    async with client_of(world, "super_admin") as client:
        depth = await call(client, "show_queue_depth")
        named = await call(client, "show_queue_depth", tenant="umbrella")
        every = await call(client, "list_jobs")
        one = await call(client, "list_jobs", tenant="umbrella")
        times = await refusal(client, "show_job_times")
        unknown = await refusal(client, "list_jobs", tenant="nope")
        strange = await refusal(client, "list_jobs", tenant="ümbrella\n")

    assert {line["tenant"]: line["queued"] for line in depth["items"]}.items() >= {
        "acme": 1,
        "umbrella": 1,
    }.items()
    assert [line["tenant"] for line in named["items"]] == ["umbrella"]
    assert [job["id"] for job in every["items"]] == [other, own]
    assert [job["id"] for job in one["items"]] == [other]
    assert (times["code"], times["errors"]) == (
        "invalid_input",
        [{"path": "tenant", "message": "is required"}],
    )
    assert "argument tenant" in times["detail"]
    assert (unknown["code"], strange["code"]) == ("tenant_unknown", "tenant_unknown")


# Changing


async def test_an_operator_enqueues_cancels_and_retries(world: World) -> None:
    async with client_of(world, "operator", allow_writes=True) as client:
        made = await call(
            client, "enqueue_job", definition_key="greet", payload={"name": "Ada"}, dedupe_key="k", tags=["x"]
        )
        again = await call(
            client, "enqueue_job", definition_key="greet", payload={"name": "B"}, dedupe_key="k"
        )
        canceled = await call(client, "cancel_job", job_id=made["id"])
        retried = await call(client, "retry_job", job_id=made["id"], payload={"name": "Grace"})
        shown = await call(client, "show_job", job_id=made["id"])
        twice = await refusal(client, "retry_job", job_id=made["id"])

    assert (made["status"], made["deduplicated"], made["tags"]) == ("queued", False, ["x"])
    assert (again["id"], again["deduplicated"]) == (made["id"], True)
    assert (canceled["status"], retried["status"], shown["payload"]) == (
        "canceled",
        "queued",
        {"name": "Grace"},
    )
    assert twice["code"] == "job_not_retryable"
    entries = await given.audit_entries(world, actor="token:acme.operator")
    actions = [entry.action for entry in entries if entry.action != "job_created"]
    assert actions == ["JOB_CANCELED", "JOB_RETRIED"]


async def test_the_jobs_of_a_group_are_retried(world: World) -> None:
    await fail(world, "E: 1", "E: 2", "E: 3")

    async with client_of(world, "operator", allow_writes=True) as client:
        [group] = (await call(client, "list_error_groups"))["items"]
        part = await call(client, "retry_error_group", group_id=group["id"], limit=2)
        queued = await call(client, "list_jobs", status=["queued"])

    assert (part["count"], part["more"]) == (2, True)
    assert len(queued["items"]) == 2


async def test_a_super_admin_pauses_and_resumes_a_definition(world: World) -> None:
    await world.call("POST", "/admin/jobs/definitions", who="super_admin", json={"key": "report"})

    async with client_of(world, "super_admin", allow_writes=True) as client:
        paused = await call(client, "pause_definition", definition_key="report")
        shown = await call(client, "show_definition", definition_key="report")
        resumed = await call(client, "resume_definition", definition_key="report")
        unknown = await refusal(client, "pause_definition", definition_key="no/such")

    assert paused["paused_at"] is not None
    assert (shown["paused_at"], shown["paused_by"]) == (paused["paused_at"], "token:all.super_admin")
    assert resumed["paused_at"] is None
    assert unknown["code"] == "not_found"


async def test_a_role_without_the_permission_is_refused_by_the_api_and_audited(world: World) -> None:
    job_id = await enqueue(world)

    async with client_of(world, "viewer", allow_writes=True) as client:
        canceled = await refusal(client, "cancel_job", job_id=job_id)
        paused = await refusal(client, "pause_definition", definition_key="greet")

    assert (canceled["code"], paused["code"]) == ("forbidden", "forbidden")
    assert "operator" in canceled["detail"]
    denied = await given.audit_entries(world, "access_denied", actor="token:acme.viewer")
    assert [entry.details["route"] for entry in denied] == [
        "/api/v1/jobs/{job_id}/cancel",
        "/api/v1/admin/jobs/definitions/{definition}",
    ]


@each_case("tool", sorted(WRITES))
async def test_a_server_that_only_reads_refuses_every_change(shared_world: World, tool: str) -> None:
    async with client_of(shared_world, "super_admin") as client:
        refused = await refusal(client, tool)

    assert refused["code"] == "writes_disabled"
    assert "--allow-writes" in refused["detail"]


# Errors


async def test_bad_arguments_are_named(world: World) -> None:
    async with client_of(world, "operator", allow_writes=True) as client:
        wrong = await refusal(client, "show_job", job_id="7", verbose=True)
        missing = await refusal(client, "explain_job")
        many = await refusal(client, "list_jobs", limit=1000)
        time = await refusal(client, "list_jobs", created_after="yesterday")
        payload = await refusal(client, "enqueue_job", definition_key="greet", payload={"name": 7})
        unreadable = await refusal(client, "list_jobs", q="a\x00b")
        cursor = await refusal(client, "list_jobs", cursor="nope")

    assert wrong["code"] == "invalid_input"
    assert {one["path"] for one in wrong["errors"]} == {"job_id", "verbose"}
    assert "unknown argument" in str(wrong["errors"])
    assert missing["errors"][0]["path"] == "job_id"
    assert many["errors"][0]["path"] == "limit"
    assert (time["code"], time["errors"][0]["path"]) == ("invalid_input", "created_after")
    assert (payload["code"], payload["errors"][0]["path"]) == ("payload_invalid", "/name")
    assert unreadable["code"] == "invalid_input"
    assert cursor["code"] == "invalid_input"


async def test_an_unknown_tool_is_named_with_those_that_exist(world: World) -> None:
    async with client_of(world) as client:
        refused = await refusal(client, "drop_database")

    assert refused["code"] == "tool_unknown"
    assert "explain_job" in refused["detail"]


async def test_an_answer_that_is_too_large_says_to_ask_for_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "MOST_BYTES", 100)
    async with client_of(world) as client:
        refused = await refusal(client, "list_definitions")

    assert refused["code"] == "answer_too_large"
    assert "smaller limit" in refused["detail"]


@pytest.mark.thorough
async def test_the_longest_page_of_jobs_fits(world: World) -> None:
    tags = [f"{number:02}" + "t" * 40 for number in range(16)]
    for _ in range(50):
        await enqueue(world, tags=tags, correlation_id="c" * 255)
    await given.set_job(world, last_error="é" * 100_000)

    async with client_of(world) as client:
        page = await call(client, "list_jobs", limit=50)

    assert len(page["items"]) == 50
    assert len(str(page)) < MOST_BYTES
    assert all(len(one["last_error"]) < LONGEST_LINE + 40 for one in page["items"])


async def test_an_unexpected_error_shows_nothing_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> Any:
        raise ValueError(SECRET)

    monkeypatch.setattr(tools.ToolBox, "find", broken)
    async with client_of(world) as client:
        refused = await refusal(client, "list_jobs")

    assert refused["code"] == "internal_error"
    assert SECRET not in capsys.readouterr().out
