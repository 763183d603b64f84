-- Stores an event (job.succeeded, job.failed …) for each ended job whose tenant has a trigger for it. True if it stored
-- one: the caller then notifies after its commit. It also notes the ended jobs for which a durable function waits, and the
-- canceled functions that wait for children.
create or replace function fairlead.tell_ends(ends fairlead.job_end[]) returns boolean language plpgsql volatile as $$
declare
    heard uuid[];
begin
    -- begin_wait locks the record of the child before it looks at its status: one of the two sees the other
    insert into fairlead.ended_children (job_id, tenant_id)
    select e.id, e.tenant_id from unnest(tell_ends.ends) e
    where e.status > 'running' and exists (
            select from fairlead.job_steps s where s.child_id = e.id and s.status = 'waiting')
        or e.status = 'canceled' and exists (
            select from fairlead.job_steps s where s.job_id = e.id and s.child_id is not null and s.status = 'waiting')
    on conflict do nothing;
    if found then
        perform fairlead.notify_in_transaction('step');
    end if;

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
        return false;
    end if;
    with ended as materialized (
        select j.* from unnest(heard) as o(id) cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.status, j.attempt_count, j.correlation_id, j.parent_id,
                j.workflow_run_id, j.queued_at, j.started_at, j.finished_at, j.last_error
            from fairlead.jobs j where j.id = o.id limit 1) j
    ), told as (
        insert into fairlead.events (id, tenant_id, name, data, correlation_id, occurred_at, created_by, caused_by, lineage)
        select fairlead.uuid7(), e.tenant_id, 'job.' || e.status,
            -- no payload and no output: they may hold secrets
            jsonb_build_object(
                'job_id', e.id, 'definition_key', d.key, 'status', e.status, 'attempt_no', e.attempt_count,
                'correlation_id', e.correlation_id, 'parent_id', e.parent_id, 'workflow_run_id', e.workflow_run_id,
                'queued_at', e.queued_at, 'started_at', e.started_at, 'finished_at', e.finished_at,
                -- the duration of the last attempt if it has ended, else the time until now
                'duration_ms', coalesce((
                    select a.duration_ms from fairlead.attempts a
                    where a.job_id = e.id and a.attempt_no = e.attempt_count limit 1),
                    (date_part('epoch', e.finished_at - e.started_at) * 1000)::bigint),
                'last_error', case when e.status <> 'succeeded' then split_part(e.last_error, E'\n', 1) end),
            e.correlation_id, e.finished_at, 'system', e.id, fairlead.lineage_of(e.id)
        from ended e join fairlead.job_definitions d on d.id = e.definition_id
        where not fairlead.follows_an_end(e.id)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    return found;
end
$$;

revoke execute on function fairlead.tell_ends from public;
grant execute on function fairlead.tell_ends to fairlead_tenant;
