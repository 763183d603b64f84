-- Completes waits of durable functions: each of `waits` has job_id, branch, position, status, result and error. Those that
-- are complete already stay as they are. Then wakes the functions. Returns how many it woke.
--
-- Locks are taken in this order: the steps (by job, branch and position), the row of the queue, the job's record. An attempt
-- that goes to sleep locks its steps first, too: it sees the result, or it is seen in `later`. Cancels, edits and the stager
-- take the last two in the same order, and never the first.
create or replace function fairlead.complete_waits(waits jsonb) returns bigint language plpgsql volatile as $$
#variable_conflict use_column
declare
    jobs uuid[];
begin
    perform from fairlead.job_steps s
    join jsonb_to_recordset(complete_waits.waits) as w(job_id uuid, branch text, position integer)
        on s.job_id = w.job_id and s.branch = w.branch and s.position = w.position
    order by s.job_id, s.branch, s.position for no key update of s;
    with done as (
        update fairlead.job_steps s
        set status = w.status, result = w.result, error = w.error, ended_at = clock_timestamp(),
            attempt_no = case when w.status = 'retry' then 0 else s.attempt_no end
        from jsonb_to_recordset(complete_waits.waits)
            as w(job_id uuid, branch text, position integer, status text, result jsonb, error jsonb)
        where s.job_id = w.job_id and s.branch = w.branch and s.position = w.position and s.status = 'waiting'
        returning s.job_id
    )
    select array_agg(distinct job_id order by job_id) into jobs from done;
    return case when jobs is null then 0 else fairlead.wake_functions(jobs) end;
end
$$;

revoke execute on function fairlead.complete_waits from public;
grant execute on function fairlead.complete_waits to fairlead_tenant;
