-- Wakes those of the jobs that are durable functions and wait in `later`: they become ready now. The caller has locked the
-- steps that were completed: see complete_waits.sql. Returns how many; the caller then notifies the workers.
create or replace function fairlead.wake_functions(jobs uuid[]) returns bigint language plpgsql volatile as $$
#variable_conflict use_column
declare
    moment constant timestamptz := clock_timestamp();
    woken bigint := 0;
    found_now bigint;
begin
    loop
        with found as materialized (
            select l.spot from unnest(wake_functions.jobs) as o(id)
            cross join lateral (
                select j.tenant_id from fairlead.job_records j where j.id = o.id limit 1) j
            cross join lateral (
                select l.ctid as spot from fairlead.later l
                where l.tenant_id = j.tenant_id and l.job_id = o.id and l.waits and l.due_at > moment
                limit 1 for update) l
        ), taken as (
            delete from fairlead.later where ctid = any(array(select spot from found))
            returning job_id, tenant_id, definition_id, host_id, priority, alone, limit_key
        ), due as (
            update fairlead.job_records j set scheduled_for = moment from taken t where j.id = t.job_id
        ), ready as (
            insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
            select job_id, tenant_id, definition_id, host_id, priority, moment, limit_key from taken where not alone
        ), suspects as (
            insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, alone, limit_key)
            select job_id, tenant_id, definition_id, host_id, priority, moment, true, limit_key from taken where alone
        )
        select count(*) into found_now from taken;
        woken := woken + found_now;
        -- an edit that this waited for has put the job into another row
        exit when not exists (
            select from unnest(wake_functions.jobs) as o(id)
            cross join lateral (
                select j.tenant_id from fairlead.job_records j where j.id = o.id limit 1) j
            cross join lateral (
                select from fairlead.later l
                where l.tenant_id = j.tenant_id and l.job_id = o.id and l.waits and l.due_at > moment limit 1) l);
    end loop;
    return woken;
end
$$;

revoke execute on function fairlead.wake_functions from public;
grant execute on function fairlead.wake_functions to fairlead_tenant;
