"""Tools that only read. Each calls one or two routes of the API."""

from typing import Any

import msgspec

from fairlead.actions.logs import cursor_after
from fairlead.errors import DefinitionUnknown, Fault
from fairlead.server.mcp import answers, arguments
from fairlead.server.mcp.api import ApiCaller
from fairlead.server.mcp.bounds import LONGEST_LOG, clip
from fairlead.server.paging import MAX_PAGE

MOST_ATTEMPTS = 5
MOST_PROBLEMS = 30
MOST_TIMES = 50
MOST_CHUNKS = 200


async def show_access(api: ApiCaller, _: arguments.ToolArguments) -> answers.AccessAnswer:
    """Show the token's role, tenant and permissions."""
    return answers.AccessAnswer.model_validate(await api.get("/me"))


async def show_overview(api: ApiCaller, _: arguments.ToolArguments) -> answers.OverviewAnswer:
    """Say whether everything is fine: problems, the worst first, each with advice; what is slow, and what is busy.

    Start here if you do not know what to look for.
    """
    found = await api.get("/overview")
    left_out = max(0, len(found["problems"]) - MOST_PROBLEMS)
    found["problems"] = found["problems"][:MOST_PROBLEMS]
    found["problems_left_out"] += left_out
    return answers.OverviewAnswer.model_validate(found)


async def show_queue_depth(api: ApiCaller, given: arguments.PageArguments) -> answers.DepthAnswer:
    """Count queued and running jobs, and show how long the oldest ready job has waited.

    Of the token's tenant. With a super admin's token: of all tenants, or of the one that is named.
    """
    me = await api.get("/me")
    if me["tenant"] is None:
        found = await api.get("/admin/queue", {"limit": given.limit, "cursor": given.cursor})
        return answers.DepthAnswer.model_validate(found)
    found = await api.get("/jobs/summary")
    line = answers.DepthLine(
        tenant=me["tenant"],
        queued=found["queued"],
        running=found["running"],
        failed=found["counts"].get("failed", 0),
        dead_letter=found["counts"].get("dead_letter", 0),
        oldest_queued_seconds=found["oldest_queued_age_seconds"],
    )
    return answers.DepthAnswer.model_validate({"items": [line]})


async def show_job_times(api: ApiCaller, _: arguments.ToolArguments) -> answers.TimesAnswer:
    """Show how long the newest 1,000 jobs of a tenant waited and ran: percentiles, of all and by definition."""
    found = await api.get("/jobs/times")
    left_out = max(0, len(found["definitions"]) - MOST_TIMES)
    found["definitions"] = found["definitions"][:MOST_TIMES]
    return answers.TimesAnswer.model_validate({**found, "definitions_left_out": left_out})


async def list_jobs(api: ApiCaller, given: arguments.JobsArguments) -> answers.JobLines:
    """List jobs, the newest first, by status, definition, tags, error, time or content of the payload.

    The lines have no payload: see show_job. A page may be short or empty and still have a next_cursor.
    """
    params = given.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
    if given.payload_contains is not None:
        params["payload_contains"] = msgspec.json.encode(given.payload_contains).decode()
    return answers.JobLines.model_validate(await api.get("/jobs", params))


async def show_job(api: ApiCaller, given: arguments.JobArguments) -> answers.JobAnswerFull:
    """Show a job: payload, output, error, and its newest attempts with the ends of their outputs."""
    job = await api.get(f"/jobs/{given.job_id}")
    before = max(0, job["attempt_count"] - MOST_ATTEMPTS)
    attempts = await api.get(
        f"/jobs/{given.job_id}/attempts", {"cursor": before or None, "limit": MOST_ATTEMPTS}
    )
    return answers.JobAnswerFull.model_validate({**job, "attempts": attempts["items"]})


async def explain_job(api: ApiCaller, given: arguments.JobArguments) -> answers.WhyAnswer:
    """Explain why a job is not running: every reason, the most decisive first."""
    return answers.WhyAnswer.model_validate(await api.get(f"/jobs/{given.job_id}/why"))


async def read_job_logs(api: ApiCaller, given: arguments.LogArguments) -> answers.LogAnswer:
    """Read a job's log from its beginning, or from a cursor. Read on from next_cursor while it is not complete.

    The end of each attempt's output is also in show_job.
    """
    page = await api.get(
        f"/jobs/{given.job_id}/logs",
        {
            "attempt_no": given.attempt_no,
            "cursor": given.cursor,
            "limit": MOST_CHUNKS,
            "strip_ansi": "true",
        },
    )
    return answers.LogAnswer.model_validate(_cut_log(page))


def _cut_log(page: dict[str, Any]) -> dict[str, Any]:
    """The first chunks of a page of the log, up to LONGEST_LOG characters, with the cursor of the rest."""
    left = LONGEST_LOG
    shown: list[dict[str, Any]] = []
    for chunk in page["items"]:
        if shown and len(chunk["text"]) > left:
            last = shown[-1]
            return {
                "items": shown,
                "next_cursor": cursor_after(last["attempt_no"], last["seq"]),
                "complete": False,
            }
        shown.append({**chunk, "text": clip(chunk["text"], LONGEST_LOG)})
        left -= len(chunk["text"])
    return {**page, "items": shown}


async def list_definitions(api: ApiCaller, given: arguments.PageArguments) -> answers.DefinitionLines:
    """List the definitions: kinds of jobs that may be enqueued, whether they are paused, and their limits."""
    found = await api.get("/definitions", {"limit": given.limit, "cursor": given.cursor})
    return answers.DefinitionLines.model_validate(found)


async def show_definition(api: ApiCaller, given: arguments.DefinitionArguments) -> answers.DefinitionAnswer:
    """Show a definition: the JSON Schema of its payload, its retries, limits and pause."""
    return answers.DefinitionAnswer.model_validate(await find_definition(api, given.definition_key))


async def find_definition(api: ApiCaller, key: str) -> dict[str, Any]:
    """The definition with this key, as the API returns it, or DefinitionUnknown."""
    cursor = None
    while True:
        page = await api.get("/definitions", {"limit": MAX_PAGE, "cursor": cursor})
        for one in page["items"]:
            if one["key"] == key:
                return dict(one)
        cursor = page["next_cursor"]
        if cursor is None:
            raise DefinitionUnknown(
                f"There is no definition {key[:130]!r}. List them with list_definitions.",
                [Fault("definition_key", "unknown")],
            )


async def list_error_groups(api: ApiCaller, given: arguments.GroupsArguments) -> answers.ErrorGroupLines:
    """List dead letters in groups: jobs of one definition whose errors differ only in numbers and ids.

    With status failed, jobs that failed without a retry; with null, both. The jobs themselves: list_jobs with a status.
    """
    params = given.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
    return answers.ErrorGroupLines.model_validate(await api.get("/errors", params))


async def show_error_group(api: ApiCaller, given: arguments.GroupArguments) -> answers.ErrorGroupAnswer:
    """Show an error group: its newest error in full, its last job, and the hours of the last week in which it failed."""
    found = await api.get(f"/errors/{given.group_id}")
    found["hours"] = [one for one in found["hours"] if one["failures"]]
    return answers.ErrorGroupAnswer.model_validate(found)
