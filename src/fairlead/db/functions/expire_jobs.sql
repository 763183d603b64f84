-- Cancels jobs that have not started in time, at most as many as `most` expiries that have passed. Jobs that have begun an
-- attempt do not expire any more. It never waits: jobs whose rows another transaction has locked are left for the next round.
-- Result: `done`, how many expiries it saw to; `canceled`, the jobs, whose workflow runs the caller moves on; `released`, how
-- many jobs of their keys became ready.
create or replace function fairlead.expire_jobs(
    most integer, out done bigint, out canceled uuid[], out released bigint
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    due uuid[];
begin
    due := array(
        select e.job_id from fairlead.expiries e where e.expires_at <= (select clock_timestamp())
        order by e.expires_at, e.job_id limit expire_jobs.most for update skip locked);
    done := 0;
    canceled := '{}';
    released := 0;
    if due = '{}' then
        return;
    end if;
    canceled := fairlead.cancel_waiting(
        array(
            select j.id from fairlead.job_records j
            where j.id = any(due) and j.status = 'queued' and j.attempt_count = 0 and j.expires_at <= clock_timestamp()),
        'expired', 'It had not started when its time was over.', 'system', with_steps => true);
    -- locked in the order of release_keys
    select coalesce(fairlead.release_keys(
        array_agg(j.definition_id), array_agg(j.tenant_id), array_agg(j.limit_key)), 0) into released
    from fairlead.job_records j where j.id = any(canceled) and j.limit_key is not null having count(*) > 0;
    released := coalesce(released, 0);
    -- the rows of jobs that still wait stay, since another transaction has them now
    delete from fairlead.expiries e
    where e.expires_at <= clock_timestamp() and e.job_id = any(due) and not exists (
        select from fairlead.job_records j
        where j.id = e.job_id and j.status = 'queued' and j.attempt_count = 0 and j.expires_at = e.expires_at
            and not exists (select from fairlead.leases l where l.job_id = j.id));
    get diagnostics done = row_count;
end
$$;

revoke execute on function fairlead.expire_jobs from public;
