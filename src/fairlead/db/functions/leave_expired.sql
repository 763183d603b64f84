-- Of the jobs that a claim has chosen, those that have not expired. It cancels the others, except the steps of workflow runs,
-- which have to move on, and jobs with a key, whose next job has to be let go: a claim must not wait for the lock of a key.
-- expire_jobs cancels those. `canceled` is how many. Claims call it only while an expiry has passed that expire_jobs has not
-- seen to.
create or replace function fairlead.leave_expired(inout ready_rows tid[], out canceled integer) language plpgsql volatile as $$
#variable_conflict use_column
declare
    expired uuid[];
    kept tid[];
begin
    select array_agg(r.ctid) filter (where not j.is_over), array_agg(j.id) filter (where j.is_over and j.limit_key is null)
    into kept, expired
    from fairlead.ready r cross join lateral (
        select j.id, j.limit_key, coalesce(j.attempt_count = 0 and j.expires_at <= clock_timestamp(), false) as is_over
        from fairlead.job_records j where j.id = r.job_id limit 1) j
    where r.ctid = any(leave_expired.ready_rows);
    ready_rows := kept;
    canceled := 0;
    if expired is not null then
        canceled := cardinality(fairlead.cancel_waiting(
            expired, 'expired', 'It had not started when its time was over.', 'system'));
    end if;
end
$$;

revoke execute on function fairlead.leave_expired from public;
