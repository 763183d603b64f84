-- Runs of workflows that end are events too: workflow.succeeded, workflow.failed and workflow.canceled, of tenants that
-- have a trigger for them, in the transaction that ends the run.
--
-- Still nothing goes round in circles: what an end set off, of a job or of a run, tells nothing when it ends.

-- The job that started a run: one that waits for it, or one that goes on.
alter table fairlead.workflow_runs add column started_by_job uuid;
update fairlead.workflow_runs set started_by_job = parent_job_id where parent_job_id is not null;

-- How many runs wait for this one, each within the next: a workflow that runs itself comes to an end.
alter table fairlead.workflow_runs add column depth integer not null default 0;

-- Whether this actor is a trigger for ends. Triggers are never deleted, so it can always be told what set them off.
create function fairlead.listens_to_ends(actor text) returns boolean language sql stable as $$
    select exists (
        select from fairlead.job_triggers g
        where (g.event_name like 'job.%' or g.event_name like 'workflow.%')
            and g.id = case when listens_to_ends.actor ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                then substr(listens_to_ends.actor, 9)::uuid end)
$$;

-- Whether a job is there because something ended: a trigger for ends made it, or what made it in turn. Everything is found by
-- key, whatever the planner thinks of the tables' sizes.
create function fairlead.follows_an_end(job uuid) returns boolean language sql stable as $$
    with recursive line as (
        -- a job, the job that made it, and so on; no circle is that long
        select follows_an_end.job as id, 1 as length
        union all
        select above.id, l.length + 1
        from line l cross join lateral (
            select coalesce(j.parent_id, (
                select r.started_by_job from fairlead.workflow_runs r where r.id = j.workflow_run_id)) as id
            from fairlead.jobs j where j.id = l.id limit 1) above
        where above.id is not null and l.length < 100
    )
    select exists (
        select from line l
        cross join lateral (
            select j.created_by, r.created_by as run_by
            from fairlead.jobs j left join fairlead.workflow_runs r on r.id = j.workflow_run_id
            where j.id = l.id limit 1) made
        cross join lateral unnest(array[made.created_by, made.run_by]) as actor(name)
        where fairlead.listens_to_ends(actor.name))
$$;

create or replace function fairlead.tell_ends(ends fairlead.job_end[]) returns void language plpgsql volatile as $$
declare
    heard uuid[];
begin
    with kinds as materialized (
        select distinct e.tenant_id, e.status from unnest(tell_ends.ends) e where e.status > 'running'
    ), listening as materialized (
        select k.tenant_id, k.status from kinds k cross join lateral (
            select from fairlead.job_triggers g
            where g.tenant_id = k.tenant_id and g.event_name = 'job.' || k.status
                and g.event_name like 'job.%' and g.is_enabled and g.deleted_at is null
            limit 1) one
    )
    select array_agg(e.id) into heard
    from listening l cross join lateral (
        select e.id from unnest(tell_ends.ends) e
        where e.tenant_id = l.tenant_id and e.status = l.status offset 0) e;
    if heard is null then
        return;
    end if;
    with ended as materialized (
        select j.* from unnest(heard) as o(id) cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.status, j.attempt_count, j.correlation_id, j.parent_id,
                j.workflow_run_id, j.queued_at, j.started_at, j.finished_at, j.last_error
            from fairlead.jobs j where j.id = o.id limit 1) j
    ), told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by)
        select fairlead.uuid7(), e.tenant_id, 'job.' || e.status,
            -- no payload and no output: they may hold what is not everybody's
            jsonb_build_object(
                'job_id', e.id, 'definition_key', d.key, 'status', e.status, 'attempt_no', e.attempt_count,
                'correlation_id', e.correlation_id, 'parent_id', e.parent_id, 'workflow_run_id', e.workflow_run_id,
                'queued_at', e.queued_at, 'started_at', e.started_at, 'finished_at', e.finished_at,
                -- of an attempt that was over when the job was canceled, what it took; of one that ends now, till now
                'duration_ms', coalesce((
                    select a.duration_ms from fairlead.job_attempts a
                    where a.job_id = e.id and a.attempt_no = e.attempt_count limit 1),
                    (date_part('epoch', e.finished_at - e.started_at) * 1000)::bigint),
                'last_error', split_part(e.last_error, E'\n', 1)),
            e.correlation_id, e.finished_at, 'system'
        from ended e join fairlead.job_definitions d on d.id = e.definition_id
        where not fairlead.follows_an_end(e.id)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    if found then
        perform pg_notify('fairlead', 'event');
    end if;
end
$$;

-- Tells of a run that has ended, if its tenant listens. Why it failed is given, since only its masked form is everybody's.
create function fairlead.tell_run_end(run uuid, failed_step text, last_error text) returns void
language plpgsql volatile as $$
begin
    with told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by)
        select fairlead.uuid7(), r.tenant_id, 'workflow.' || r.status,
            jsonb_build_object(
                'run_id', r.id, 'workflow', r.key, 'version', r.version, 'status', r.status,
                'correlation_id', r.correlation_id, 'started_by_job', r.started_by_job,
                'started_at', r.created_at, 'finished_at', r.finished_at,
                'duration_ms', (date_part('epoch', r.finished_at - r.created_at) * 1000)::bigint,
                'failed_step', tell_run_end.failed_step, 'last_error', split_part(tell_run_end.last_error, E'\n', 1)),
            r.correlation_id, r.finished_at, 'system'
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
    if found then
        perform pg_notify('fairlead', 'event');
    end if;
end
$$;

revoke execute on function fairlead.listens_to_ends(text) from public;
revoke execute on function fairlead.follows_an_end(uuid) from public;
revoke execute on function fairlead.tell_run_end(uuid, text, text) from public;
grant execute on function fairlead.listens_to_ends(text), fairlead.follows_an_end(uuid),
    fairlead.tell_run_end(uuid, text, text) to fairlead_tenant;
