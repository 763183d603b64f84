-- Advances workflow runs. Input: `ended`, the ids and statuses of jobs that ended or went back to the queue; `over`, the
-- run_id, place, state and error of steps that ended before they ran, in runs that the caller has locked. It decrements the
-- counters of the steps that wait for them; a step with no parent left gets the state of one running job, which the
-- caller may correct. Result: `released`, how many of those steps have their jobs already; `free`, the others, and
-- `definitions`, the columns needed to create their jobs (see release_steps); `runs`, the locked runs; `back`, jobs that went
-- back although their run is being canceled. Null if none of the jobs is a step.
create or replace function fairlead.move_on(
    ended jsonb, over jsonb default '[]', settings jsonb default '{}'
) returns json language plpgsql volatile
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off
set jit = off set plan_cache_mode = force_generic_plan as $$
declare
    runs uuid[];
    of_runs uuid[];
    places integer[];
    ends text[];
    jobs uuid[];
    back json;
    freed_runs uuid[];
    freed_places integer[];
    freed_ran integer[];
    undo_runs uuid[];
    undo_places integer[];
    begun json;
begin
    select array_agg(j.workflow_run_id), array_agg(j.workflow_step), array_agg(g.status), array_agg(j.id)
    into of_runs, places, ends, jobs
    from jsonb_each_text(move_on.ended) as g(id, status)
    cross join lateral (
        select j.id, j.workflow_run_id, j.workflow_step from fairlead.job_records j where j.id = g.id::uuid limit 1) j
    -- not in the lookup: the planner would scan the whole index of runs while it believes that there are few steps
    where j.workflow_run_id is not null;
    runs := array(
        select distinct r.id from (
            select unnest(of_runs) union all
            select (o ->> 'run_id')::uuid from jsonb_array_elements(move_on.over) o) as r(id)
        order by r.id);
    if cardinality(runs) = 0 then
        return null;
    end if;
    -- only the transaction that holds a run's row changes its steps
    perform from fairlead.workflow_runs r where r.id = any(runs) order by r.id for update;

    with tallied as (
        select e.run_id, e.place, count(*) as jobs, count(*) filter (where e.status in ('failed', 'dead_letter')) as failed,
            count(*) filter (where e.status = 'canceled') as canceled
        from unnest(of_runs, places, ends) as e(run_id, place, status)
        where e.status not in ('queued', 'running') group by e.run_id, e.place
    ), running as materialized (
        select t.jobs, t.failed, t.canceled, s.spot from tallied t cross join lateral (
            select s.ctid as spot from fairlead.workflow_steps s
            where s.run_id = t.run_id and s.place = t.place and s.state = 'running' limit 1) s
    ), counted as (
        update fairlead.workflow_steps s
        set remaining = s.remaining - e.jobs, failed = s.failed + e.failed, canceled = s.canceled + e.canceled,
            state = case when s.remaining > e.jobs then 'running' when s.failed + e.failed > 0 then 'failed'
                when s.canceled + e.canceled > 0 then 'canceled' else 'succeeded' end,
            finished_at = case when s.remaining <= e.jobs then clock_timestamp() end
        from running e where s.ctid = e.spot
        returning s.run_id, s.place, s.name, s.state, s.next, s.on_failure, s.compensation, s.error
    ), ended as materialized (
        select e.*, e.state in ('failed', 'canceled') and e.on_failure <> 'continue' as stops
        from (
            select c.* from counted c where c.state <> 'running'
            union all
            select s.run_id, s.place, s.name, o.state, s.next, s.on_failure, s.compensation, o.error
            from jsonb_to_recordset(move_on.over) as o(run_id uuid, place int, state text, error jsonb)
            cross join lateral (
                select s.* from fairlead.workflow_steps s where s.run_id = o.run_id and s.place = o.place limit 1) s
        ) e
    ), run as (
        update fairlead.workflow_runs r
        set live = r.live - e.live, failing = r.failing or e.stops, error = coalesce(r.error, e.error)
        from (
            select e.run_id, count(*) as live, bool_or(e.stops) as stops,
                (array_agg(jsonb_build_object('step', e.name) || coalesce(e.error, '{}') order by e.place)
                    filter (where e.stops))[1] as error
            from ended e group by e.run_id) e
        where r.id = e.run_id
        returning r.id, r.failing or r.cancel_requested_at is not null as is_closing,
            r.cancel_requested_at is not null as is_canceling
    ), less as (
        -- steps of one layer often have the same next steps: unnested once
        select e.run_id, n.place, sum(e.steps) as steps, sum(e.ran) as ran
        from (
            select e.run_id, e.next, count(*)::int as steps, (count(*) filter (where e.state <> 'skipped'))::int as ran
            from run cross join ended e where e.run_id = run.id and not run.is_closing
            group by e.run_id, e.next) e
        cross join lateral unnest(e.next) as n(place)
        group by e.run_id, n.place
    ), waiting as materialized (
        select l.steps, l.ran, s.spot from less l cross join lateral (
            select s.ctid as spot from fairlead.workflow_steps s
            where s.run_id = l.run_id and s.place = l.place and s.state = 'waiting' limit 1) s
    ), begun as (
        update fairlead.workflow_steps s
        set pending = s.pending - w.steps, ran = s.ran + w.ran,
            state = case when s.pending = w.steps then 'running' else s.state end,
            remaining = case when s.pending = w.steps then 1 else 0 end,
            started_at = case when s.pending = w.steps then clock_timestamp() end
        from waiting w where s.ctid = w.spot
        returning s.run_id, s.place, s.pending, s.ran
    ), freed as (
        select array_agg(b.run_id) as runs, array_agg(b.place) as places, array_agg(b.ran) as ran
        from begun b where b.pending = 0
    ), undo as (
        select array_agg(e.run_id) as runs, array_agg(e.compensation) as places
        from ended e join run on run.id = e.run_id and not run.is_canceling
        where e.stops and e.compensation is not null
    )
    select freed.runs, freed.places, freed.ran, undo.runs, undo.places
    into freed_runs, freed_places, freed_ran, undo_runs, undo_places
    from freed, undo;

    if undo_runs is not null then
        with begun as (
            update fairlead.workflow_steps s set state = 'running', remaining = 1, started_at = clock_timestamp()
            from (select distinct u.run_id, u.place from unnest(undo_runs, undo_places) as u(run_id, place)) u
            where s.run_id = u.run_id and s.place = u.place and s.state = 'waiting'
            returning s.run_id, s.place
        )
        select freed_runs || array_agg(b.run_id), freed_places || array_agg(b.place),
            freed_ran || array_agg(0) into freed_runs, freed_places, freed_ran
        from begun b;
    end if;
    if cardinality(freed_runs) > 0 then
        update fairlead.workflow_runs r set live = r.live + f.steps
        from (select f.id, count(*) as steps from unnest(freed_runs) as f(id) group by f.id) f
        where r.id = f.id;
        begun := fairlead.release_steps(freed_runs, freed_places, freed_ran, move_on.settings);
    end if;
    if 'queued' = any(ends) then
        select json_agg(e.job) into back
        from unnest(jobs, of_runs, ends) as e(job, run_id, status) join fairlead.workflow_runs r on r.id = e.run_id
        where e.status = 'queued' and r.cancel_requested_at is not null;
    end if;
    return json_build_object(
        'released', begun -> 'released',
        'free', begun -> 'free',
        'definitions', begun -> 'definitions',
        'back', back,
        'runs', (
            select json_agg(json_build_object(
                'id', r.id, 'tenant_id', r.tenant_id, 'tenant', t.slug, 'tenant_name', t.name,
                'tenant_timezone', t.timezone, 'key', r.key, 'version', r.version, 'status', r.status, 'live', r.live,
                'failing', r.failing, 'is_canceling', r.cancel_requested_at is not null,
                'parent_job_id', r.parent_job_id, 'correlation_id', r.correlation_id,
                'input', case when begun ->> 'free' is not null or r.live = 0 then r.input end,
                'output_template', case when r.live = 0 then r.output_template end, 'error', r.error,
                'secret_paths', r.secret_paths))
            from unnest(runs) as i(id) join fairlead.workflow_runs r on r.id = i.id
            join fairlead.tenants t on t.id = r.tenant_id));
end
$$;

revoke execute on function fairlead.move_on from public;
grant execute on function fairlead.move_on to fairlead_tenant;
