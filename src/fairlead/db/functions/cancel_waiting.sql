-- Cancels those of the jobs that wait, for a reason of the queue's own: `reason` is a stable word ('replaced', 'expired'),
-- and `message` tells people. It never waits: it leaves out jobs whose rows another transaction has locked, and steps of
-- workflow runs unless `with_steps`: then the caller moves their runs on. Returns the jobs that it canceled.
create or replace function fairlead.cancel_waiting(
    ids uuid[], reason text, message text, actor text, with_steps boolean default false
) returns uuid[] language plpgsql volatile as $$
#variable_conflict use_column
declare
    canceled fairlead.job_end[];
    moment constant timestamptz := clock_timestamp();
begin
    with wanted as materialized (
        -- a row for each time that the queue may have: see cancel_queued in store/jobs.sql
        select j.id, j.tenant_id, j.definition_id, j.host_id, j.priority, due.at
        from fairlead.job_records j
        cross join lateral (select distinct unnest(
            array[j.scheduled_for, greatest(j.scheduled_for, j.queued_at)]) as at) due
        where j.id = any(cancel_waiting.ids) and j.status = 'queued'
            and (cancel_waiting.with_steps or j.workflow_run_id is null)
    ), of_tenant as materialized (
        select r.spot from wanted w cross join lateral (
            select r.ctid as spot from fairlead.ready r
            where w.host_id is null and r.host_id is null and r.tenant_id = w.tenant_id
                and r.definition_id = w.definition_id and r.priority = w.priority
                and r.scheduled_for = w.at and r.job_id = w.id
            limit 1 for update skip locked) r
    ), of_host as materialized (
        select r.spot from wanted w cross join lateral (
            select r.ctid as spot from fairlead.ready r
            where r.host_id = w.host_id and r.tenant_id = w.tenant_id
                and r.definition_id = w.definition_id and r.priority = w.priority
                and r.scheduled_for = w.at and r.job_id = w.id
            limit 1 for update skip locked) r
    ), not_due as materialized (
        select l.spot from wanted w cross join lateral (
            select l.ctid as spot from fairlead.later l where l.due_at = w.at and l.job_id = w.id
            limit 1 for update skip locked) l
    ), from_ready as (
        delete from fairlead.ready
        where ctid = any(array(select spot from of_tenant union all select spot from of_host))
        returning job_id
    ), from_later as (
        delete from fairlead.later where ctid = any(array(select spot from not_due)) returning job_id
    ), ended as (
        update fairlead.job_records j
        set status = 'canceled', troubled = true, finished_at = moment,
            cancel_requested_at = coalesce(j.cancel_requested_at, moment), last_error = cancel_waiting.message,
            error = jsonb_build_object('type', cancel_waiting.reason, 'message', cancel_waiting.message)
        where j.id = any(array(select job_id from from_ready union all select job_id from from_later))
        returning j.id, j.tenant_id, j.definition_id, j.dedupe_key
    ), freed as (
        delete from fairlead.active_keys where ctid = any(array(
            select held.spot from ended e cross join lateral (
                select k.ctid as spot from fairlead.active_keys k
                where k.tenant_id = e.tenant_id and k.key_hash = sha256(convert_to(e.dedupe_key, 'UTF8'))
                    and k.job_id = e.id and coalesce(k.unique_until <= clock_timestamp(), true)
                limit 1) held
            where e.dedupe_key is not null))
    ), counted as (
        insert into fairlead.counts (tenant_id, definition_id, minute, queued, canceled)
        select tenant_id, definition_id, date_trunc('minute', moment), -count(*), count(*)
        from ended group by tenant_id, definition_id
    ), audited as (
        insert into fairlead.audit_log (at, tenant_id, actor, action, resource_type, resource_id, details)
        select moment, e.tenant_id, cancel_waiting.actor, 'JOB_CANCELED', 'job', e.id::text,
            jsonb_build_object('definition_key', d.key, 'reason', cancel_waiting.reason)
        from ended e join fairlead.job_definitions d on d.id = e.definition_id
    )
    select array_agg(row(e.id, e.tenant_id, 'canceled')::fairlead.job_end) into canceled from ended e;
    if canceled is null then
        return '{}';
    end if;
    if fairlead.tell_ends(canceled) then
        perform fairlead.notify_in_transaction('event');
    end if;
    return array(select e.id from unnest(canceled) e);
end
$$;

revoke execute on function fairlead.cancel_waiting from public;
grant execute on function fairlead.cancel_waiting to fairlead_tenant;
