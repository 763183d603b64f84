-- Inserts the jobs of steps, ready to run; one entry in the audit log for each run. By the strategy of its key, a step replaces
-- or cancels other jobs; it is itself never dropped or replaced, since its run waits for it. Steps become ready in the
-- transactions of ends of attempts, which must not wait for an open enqueue: while another transaction has the turn of the key,
-- a step leaves the other jobs alone and waits in line. It also leaves alone those that another transaction holds.
create or replace function fairlead.add_step_jobs(new fairlead.step_job[]) returns void language plpgsql volatile as $$
begin
    perform case when pg_try_advisory_xact_lock(fairlead.key_turn_of(k.definition_id, k.tenant_id, k.limit_key))
        then fairlead.apply_key_strategy(
            k.definition_id, k.tenant_id, k.limit_key, k.by_key, k.job_id, k.actor, waits => false) end
    from (
        select n.definition_id, n.tenant_id, l.limit_key, d.by_key, min(n.id::text)::uuid as job_id,
            min('workflow:' || n.key) as actor
        from unnest(add_step_jobs.new) n
        join fairlead.job_definitions d on d.id = n.definition_id
        cross join lateral (select fairlead.limit_key_of(d.by_key, n.payload) as limit_key offset 0) l
        where d.by_key ->> 'strategy' in ('replace_queued', 'cancel_running') and l.limit_key is not null
        group by n.definition_id, n.tenant_id, l.limit_key, d.by_key
        offset 0) k;
    with job as (
        insert into fairlead.job_records (
            id, tenant_id, definition_id, workflow_run_id, workflow_step, workflow_item, priority, max_attempts,
            timeout_seconds, scheduled_for, source, source_ref, correlation_id, created_by, payload, secret_paths, host_id,
            resource_id, limit_key, tags, expires_at)
        select n.id, n.tenant_id, n.definition_id, n.run_id, n.place, n.item, n.priority, n.max_attempts, n.timeout,
            clock_timestamp(), 'system', n.name, n.correlation_id, 'workflow:' || n.key, n.payload, n.secret_paths,
            n.host_id, n.resource_id, (
                select fairlead.limit_key_of(d.by_key, n.payload) from fairlead.job_definitions d where d.id = n.definition_id),
            n.tags, clock_timestamp() + make_interval(secs => n.expires_in)
        from unnest(add_step_jobs.new) n
        returning id, tenant_id, definition_id, workflow_run_id, priority,
            greatest(scheduled_for, queued_at) as scheduled_for, created_by, host_id, limit_key
    ), now_ready as (
        insert into fairlead.ready (job_id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key)
        select id, tenant_id, definition_id, priority, scheduled_for, host_id, limit_key from job
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued)
        select tenant_id, definition_id, date_trunc('minute', clock_timestamp()), count(*)
        from job group by tenant_id, definition_id
    ), of_root as (
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs)
        select coalesce(r.root_run_id, r.id), j.tenant_id, sum(j.jobs)
        from (select tenant_id, workflow_run_id, count(*) as jobs from job group by tenant_id, workflow_run_id) j
        cross join lateral (
            select r.root_run_id, r.id from fairlead.workflow_runs r where r.id = j.workflow_run_id limit 1) r
        group by 1, 2
    )
    insert into fairlead.audit_log (tenant_id, actor, action, resource_type, resource_id, details)
    select tenant_id, min(created_by), 'jobs_created', 'workflow_run', workflow_run_id::text,
        jsonb_build_object('count', count(*))
    from job group by tenant_id, workflow_run_id;

    -- few steps have tags or expire
    if exists (select from unnest(add_step_jobs.new) n where n.tags is not null or n.expires_in is not null) then
        insert into fairlead.job_tags (tenant_id, tag, job_id)
        select n.tenant_id, t.tag, n.id from unnest(add_step_jobs.new) n, unnest(n.tags) as t(tag);
        insert into fairlead.expiries (expires_at, job_id, tenant_id)
        select j.expires_at, j.id, j.tenant_id from unnest(add_step_jobs.new) n
        cross join lateral (
            select j.expires_at, j.id, j.tenant_id from fairlead.job_records j where j.id = n.id limit 1) j
        where n.expires_in is not null;
    end if;
end
$$;

revoke execute on function fairlead.add_step_jobs from public;
grant execute on function fairlead.add_step_jobs to fairlead_tenant;
