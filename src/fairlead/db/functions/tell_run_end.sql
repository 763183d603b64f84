-- Stores an event for an ended run, if its tenant has a trigger for it. The caller passes the error, with secrets masked.
-- True if it stored an event: the caller then notifies after its commit.
create or replace function fairlead.tell_run_end(run uuid, failed_step text, last_error text) returns boolean language plpgsql volatile as $$
begin
    with told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by, caused_by, lineage)
        select fairlead.uuid7(), r.tenant_id, 'workflow.' || r.status,
            jsonb_build_object(
                'run_id', r.id, 'workflow', r.key, 'version', r.version, 'status', r.status,
                'correlation_id', r.correlation_id, 'started_by_job', r.started_by_job,
                'started_at', r.created_at, 'finished_at', r.finished_at,
                'duration_ms', (date_part('epoch', r.finished_at - r.created_at) * 1000)::bigint,
                'failed_step', tell_run_end.failed_step, 'last_error', split_part(tell_run_end.last_error, E'\n', 1)),
            r.correlation_id, r.finished_at, 'system', r.started_by_job, fairlead.lineage_of(r.started_by_job)
        from fairlead.workflow_runs r
        where r.id = tell_run_end.run
            and exists (
                select from fairlead.job_triggers g
                where g.tenant_id = r.tenant_id and g.event_name = 'workflow.' || r.status
                    and g.is_enabled and g.deleted_at is null)
            and not fairlead.listens_to_ends(r.created_by) and not fairlead.follows_an_end(r.started_by_job)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    return found;
end
$$;

revoke execute on function fairlead.tell_run_end from public;
grant execute on function fairlead.tell_run_end to fairlead_tenant;
