-- Whether the quotas of the tenants and root runs of these jobs allow all of them.
create or replace function fairlead.step_jobs_fit(new fairlead.step_job[], settings jsonb) returns boolean
language plpgsql volatile as $$
declare
    of_tenant record;
    of_run record;
begin
    for of_tenant in select n.tenant_id, count(*) as jobs from unnest(step_jobs_fit.new) n group by n.tenant_id loop
        if fairlead.room_of(of_tenant.tenant_id, of_tenant.jobs, step_jobs_fit.settings) is not null then
            return false;
        end if;
    end loop;
    for of_run in
        select coalesce(r.root_run_id, r.id) as root, sum(n.jobs)::bigint as jobs
        from (select n.run_id, count(*) as jobs from unnest(step_jobs_fit.new) n group by n.run_id) n
        cross join lateral (
            select r.root_run_id, r.id from fairlead.workflow_runs r where r.id = n.run_id limit 1) r
        group by 1
    loop
        if fairlead.room_in_run(of_run.root, of_run.jobs, step_jobs_fit.settings) is not null then
            return false;
        end if;
    end loop;
    return true;
end
$$;

revoke execute on function fairlead.step_jobs_fit from public;
grant execute on function fairlead.step_jobs_fit to fairlead_tenant;
