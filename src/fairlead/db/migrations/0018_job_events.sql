-- Jobs that end are events: job.succeeded, job.failed, job.dead_letter and job.canceled, of tenants that have a trigger
-- for them. They are written in the transaction that ends the job, and dispatched like all others.
--
-- A job that such an event made tells nothing, and neither does what that job made in turn: nothing goes round in circles.

-- Next to empty: whoever ends jobs looks here whether anybody wants to know.
create index job_triggers_of_ends on fairlead.job_triggers (tenant_id, event_name)
    where event_name like 'job.%' and is_enabled and deleted_at is null;

-- Tells of those of these jobs that have ended and whose tenants listen. Everything is found by key, whatever the planner
-- thinks of the tables' sizes.
create type fairlead.job_end as (id uuid, tenant_id uuid, status fairlead.job_status);
create function fairlead.tell_ends(ends fairlead.job_end[]) returns void language plpgsql volatile as $$
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
    with recursive ended as materialized (
        select j.* from unnest(heard) as o(id) cross join lateral (
            select j.id, j.tenant_id, j.definition_id, j.status, j.attempt_count, j.correlation_id, j.parent_id,
                j.workflow_run_id, j.queued_at, j.started_at, j.finished_at, j.last_error
            from fairlead.jobs j where j.id = o.id limit 1) j
    ), line as (
        -- a job, the job that made it, and so on; no circle is that long
        select e.id as job_id, e.id as maker, 1 as length from ended e
        union all
        select l.job_id, above.id, l.length + 1
        from line l cross join lateral (
            select coalesce(j.parent_id, (
                select r.parent_job_id from fairlead.workflow_runs r where r.id = j.workflow_run_id)) as id
            from fairlead.jobs j where j.id = l.maker limit 1) above
        where above.id is not null and l.length < 100
    ), silent as materialized (
        select l.job_id from line l
        cross join lateral (
            select j.created_by, r.created_by as run_by
            from fairlead.jobs j left join fairlead.workflow_runs r on r.id = j.workflow_run_id
            where j.id = l.maker limit 1) made
        -- triggers are never deleted, so it can always be told what set them off
        cross join lateral unnest(array[made.created_by, made.run_by]) as actor(name)
        cross join lateral (
            select from fairlead.job_triggers g
            where g.event_name like 'job.%'
                and g.id = case when actor.name ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    then substr(actor.name, 9)::uuid end
            limit 1) of_ends
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
        where not exists (select from silent s where s.job_id = e.id)
        returning id, tenant_id
    )
    insert into fairlead.events_waiting (event_id, tenant_id) select id, tenant_id from told;
    if found then
        perform pg_notify('fairlead', 'event');
    end if;
end
$$;
revoke execute on function fairlead.tell_ends(fairlead.job_end[]) from public;
grant execute on function fairlead.tell_ends(fairlead.job_end[]) to fairlead_tenant;

-- What the system tells of, nobody else can.
create or replace function pg_temp.exchanged(definition text, pieces text[]) returns text language plpgsql as $$
declare
    piece text[];
begin
    foreach piece slice 1 in array pieces loop
        if cardinality(string_to_array(definition, piece[1])) <> 2 then
            raise exception 'not there, or not once: %', piece[1];
        end if;
        definition := replace(definition, piece[1], piece[2]);
    end loop;
    return definition;
end
$$;

do $$
declare
    emit_one constant text := 'fairlead.emit_one(text, text, jsonb, text, timestamptz, text, uuid)';
begin
    execute pg_temp.exchanged(pg_get_functiondef(emit_one::regprocedure), array[[
        'then ''event_invalid''
',
        'then ''event_invalid''
        when emit_one.name ~ ''^(job|workflow|usage)\.'' then ''event_reserved''
']]);
end
$$;
