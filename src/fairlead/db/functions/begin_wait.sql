-- Records a wait of a durable function, for the attempt that owns the lease: null if the lease is lost. A wait that is
-- recorded already stays as it is. What it waits for may have come before: a signal that no wait has taken, or the end of
-- the child. (For events see actions/durable.py, which compares them with the filter.) Returns the row as job_steps has it.
create or replace function fairlead.begin_wait(
    job_id uuid, attempt_no integer, token uuid, branch text, "position" integer, kind text, name text, seconds float8,
    due timestamptz, request jsonb, child uuid, tries integer, match_key uuid
) returns fairlead.job_steps language plpgsql volatile as $$
#variable_conflict use_column
declare
    step fairlead.job_steps;
    tenant uuid;
    moment timestamptz;
    ended fairlead.job_records;
    signal fairlead.job_signals;
begin
    if begin_wait.kind = 'signal' then
        -- a signal is sent under the same lock: it sees this wait, or is seen here
        perform pg_advisory_xact_lock(hashtextextended('fairlead.signal ' || begin_wait.job_id, 0));
    end if;
    select l.tenant_id into tenant from fairlead.leases l
    where l.job_id = begin_wait.job_id and l.attempt_no = begin_wait.attempt_no and l.token = begin_wait.token
        and l.expires_at > clock_timestamp()
    for key share;
    if not found then
        return null;
    end if;
    if begin_wait.child is not null then
        -- `share`, so that it waits for a transaction that ends the child, and is waited for by one: see tell_ends.sql
        select j.* into ended from fairlead.job_records j where j.id = begin_wait.child for share;
    end if;
    moment := clock_timestamp();
    insert into fairlead.job_steps (
        job_id, branch, position, attempt_no, status, kind, name, tenant_id, tries, started_at, due_at, child_id, match_key,
        request)
    values (
        begin_wait.job_id, begin_wait.branch, begin_wait.position, begin_wait.attempt_no, 'waiting', begin_wait.kind,
        begin_wait.name, tenant, begin_wait.tries, moment,
        coalesce(begin_wait.due, moment + make_interval(secs => begin_wait.seconds)), begin_wait.child,
        begin_wait.match_key, begin_wait.request)
    on conflict (job_id, branch, position) do update
    set attempt_no = excluded.attempt_no, status = 'waiting', tries = excluded.tries, started_at = excluded.started_at,
        ended_at = null, due_at = excluded.due_at, child_id = excluded.child_id, error = null
    where job_steps.status = 'retry'
    returning * into step;
    if step.job_id is null then
        select s.* into step from fairlead.job_steps s
        where s.job_id = begin_wait.job_id and s.branch = begin_wait.branch and s.position = begin_wait.position;
    end if;
    if step.status <> 'waiting' then
        return step;
    end if;
    if step.kind = 'signal' then
        update fairlead.job_signals set taken_at = moment where id = (
            select s.id from fairlead.job_signals s
            where s.job_id = step.job_id and s.name = step.name and s.taken_at is null order by s.id limit 1)
        returning * into signal;
        if signal.id is not null then
            update fairlead.job_steps s
            set status = 'succeeded', ended_at = moment, result = jsonb_build_object(
                'id', signal.id, 'name', signal.name, 'data', signal.data, 'sent_at', signal.sent_at, 'sent_by', signal.sent_by)
            where s.job_id = step.job_id and s.branch = step.branch and s.position = step.position
            returning * into step;
        end if;
    elsif ended.status > 'running' then
        update fairlead.job_steps s
        set status = case when ended.status = 'succeeded' then 'succeeded' else 'retry' end, ended_at = moment,
            attempt_no = case when ended.status = 'succeeded' then s.attempt_no else 0 end, result = ended.output,
            error = fairlead.error_of_child(ended.status, ended.error, ended.last_error)
        where s.job_id = step.job_id and s.branch = step.branch and s.position = step.position
        returning * into step;
    end if;
    return step;
end
$$;

revoke execute on function fairlead.begin_wait from public;
