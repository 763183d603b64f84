-- Ends attempts with a success in the caller's own transaction, for the library: one JSON text in and one out. The lease
-- (job, attempt, token) is the permission: without it nothing is changed. Only successes are taken, with an output, a cost
-- and a log. Result: `done`, the statuses of the jobs that this call or an earlier one of the same owner has ended; and
-- `database`, if some are missing: perhaps the caller is connected to another database.
--
-- A step of a workflow run is left in ended_steps: workers advance its run after the commit.
create or replace function fairlead.finish_joined(request text) returns text language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    given_ends jsonb;
    given_actor constant text := finish_joined.request::jsonb ->> 'actor';
    done_now text;
    done_before text;
    event_stored boolean;
    jobs_released bigint;
    step_ended boolean;
begin
    -- on Citus: perform fairlead.hold_placement();
    select jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'job_id', e.value -> 'job_id', 'attempt_no', e.value -> 'attempt_no', 'token', e.value -> 'token',
        'cost', e.value -> 'cost', 'log', e.value -> 'log')) || jsonb_build_object('output', e.value -> 'output'))
    into given_ends
    from jsonb_array_elements(finish_joined.request::jsonb -> 'ends') e;

    for done_now, event_stored, jobs_released in
        -- include store/queue.sql: finish
    loop
    end loop;
    with step as (
        insert into fairlead.ended_steps (job_id, tenant_id)
        select j.id, j.tenant_id from jsonb_object_keys(coalesce(done_now, '{}')::jsonb) as d(id)
        cross join lateral (
            select j.id, j.tenant_id, j.workflow_run_id from fairlead.job_records j where j.id = d.id::uuid limit 1) j
        where j.workflow_run_id is not null
        returning 1
    )
    select exists (select from step) into step_ended;
    if event_stored then
        perform fairlead.notify_in_transaction('event');
    end if;
    if jobs_released > 0 then
        perform fairlead.notify_in_transaction('ready');
    end if;
    if step_ended then
        perform fairlead.notify_in_transaction('step');
    end if;

    if (select count(*) from jsonb_object_keys(coalesce(done_now, '{}')::jsonb)) < jsonb_array_length(given_ends) then
        for done_before in
            -- include store/queue.sql: finished_before
        loop
        end loop;
    end if;
    return jsonb_build_object(
        'done', coalesce(done_before, '{}')::jsonb || coalesce(done_now, '{}')::jsonb,
        'database', fairlead.database_identity())::text;
end
$$;

revoke execute on function fairlead.finish_joined from public;
