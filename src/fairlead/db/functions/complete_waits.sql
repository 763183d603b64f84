-- Completes waits of durable functions: each of `waits` has job_id, branch, position, status, result and error. Those that
-- are complete already stay as they are. Then wakes the functions. The records of the jobs are locked first, in the order
-- of their ids: an attempt that ends at the same moment sees the result, or is seen in `later`. Returns how many it woke.
create or replace function fairlead.complete_waits(waits jsonb) returns bigint language plpgsql volatile as $$
#variable_conflict use_column
declare
    jobs uuid[] := array(
        select distinct (w.value ->> 'job_id')::uuid from jsonb_array_elements(complete_waits.waits) w);
begin
    perform from fairlead.job_records j where j.id = any(jobs) order by j.id for no key update;
    with done as (
        update fairlead.job_steps s
        set status = w.status, result = w.result, error = w.error, ended_at = clock_timestamp(),
            attempt_no = case when w.status = 'retry' then 0 else s.attempt_no end
        from jsonb_to_recordset(complete_waits.waits)
            as w(job_id uuid, branch text, position integer, status text, result jsonb, error jsonb)
        where s.job_id = w.job_id and s.branch = w.branch and s.position = w.position and s.status = 'waiting'
        returning s.job_id
    )
    select array_agg(distinct job_id) into jobs from done;
    return case when jobs is null then 0 else fairlead.wake_functions(jobs) end;
end
$$;

revoke execute on function fairlead.complete_waits from public;
grant execute on function fairlead.complete_waits to fairlead_tenant;
