"""Tools that change something: offered only with --allow-writes, to tokens whose role permits it."""

from urllib.parse import quote

from fairlead.server.mcp import answers, arguments
from fairlead.server.mcp.api import ApiCaller


async def enqueue_job(api: ApiCaller, given: arguments.EnqueueArguments) -> answers.EnqueuedAnswer:
    """Enqueue a job. With a dedupe_key, an active job that has it is returned instead of a second one."""
    body = given.model_dump(mode="json", exclude={"tenant"}, exclude_none=True)
    return answers.EnqueuedAnswer.model_validate(await api.post("/jobs", body))


async def retry_job(api: ApiCaller, given: arguments.RetryArguments) -> answers.JobLine:
    """Queue a failed, dead-lettered or canceled job again, with new attempts and, if given, another payload."""
    body = {"payload": given.payload}
    return answers.JobLine.model_validate(await api.post(f"/jobs/{given.job_id}/retry", body))


async def retry_error_group(api: ApiCaller, given: arguments.GroupRetryArguments) -> answers.GroupRetryAnswer:
    """Queue the jobs of an error group again, with new attempts."""
    body = {"status": given.status, "limit": given.limit}
    return answers.GroupRetryAnswer.model_validate(await api.post(f"/errors/{given.group_id}/retry", body))


async def cancel_job(api: ApiCaller, given: arguments.JobArguments) -> answers.JobLine:
    """Cancel a job: at once if it is queued; a running job is asked to stop at its worker's next heartbeat."""
    return answers.JobLine.model_validate(await api.post(f"/jobs/{given.job_id}/cancel"))


async def pause_definition(api: ApiCaller, given: arguments.DefinitionArguments) -> answers.DefinitionLine:
    """Stop starting the jobs of a definition, of all tenants. Running jobs continue; new jobs wait. Super admins only."""
    return await _set_paused(api, given, paused=True)


async def resume_definition(api: ApiCaller, given: arguments.DefinitionArguments) -> answers.DefinitionLine:
    """Start the jobs of a paused definition again. Super admins only."""
    return await _set_paused(api, given, paused=False)


async def _set_paused(
    api: ApiCaller, given: arguments.DefinitionArguments, *, paused: bool
) -> answers.DefinitionLine:
    path = f"/admin/jobs/definitions/{quote(given.definition_key, safe='')}"
    return answers.DefinitionLine.model_validate(await api.patch(path, {"paused": paused}))
