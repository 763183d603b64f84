-- Whether a root run may have `more` jobs: null, or the quota that refuses them, its use and its limit. If there are many
-- rows, it replaces those that no other transaction has locked by their sum. It never waits.
create or replace function fairlead.room_in_run(root uuid, more bigint, settings jsonb default '{}') returns jsonb
language plpgsql volatile as $$
#variable_conflict use_column
declare
    allowed bigint;
    used bigint;
    number bigint;
    level constant text := current_setting('transaction_isolation');
begin
    select fairlead.quota_of(t.quotas, room_in_run.settings, 'run_jobs') into allowed
    from fairlead.workflow_runs r join fairlead.tenants t on t.id = r.tenant_id where r.id = room_in_run.root;
    if allowed is null or level = 'serializable' then
        return null;
    end if;
    select coalesce(sum(j.jobs), 0), count(*) into used, number
    from fairlead.run_jobs j where j.root_run_id = room_in_run.root;
    if used + room_in_run.more > allowed then
        return jsonb_build_object('quota', 'run_jobs', 'used', used, 'allowed', allowed, 'run_id', room_in_run.root);
    end if;
    if number > 100 and level = 'read committed' then
        with gone as (
            delete from fairlead.run_jobs where ctid = any(array(
                select j.ctid from fairlead.run_jobs j where j.root_run_id = room_in_run.root for update skip locked))
            returning root_run_id, tenant_id, jobs
        )
        insert into fairlead.run_jobs (root_run_id, tenant_id, jobs)
        select root_run_id, tenant_id, sum(jobs) from gone group by root_run_id, tenant_id;
    end if;
    return null;
end
$$;

revoke execute on function fairlead.room_in_run from public;
grant execute on function fairlead.room_in_run to fairlead_tenant;
