-- The run that a job belongs to, directly or through the jobs and runs that led to it; of nested runs the outermost. Null: none.
create or replace function fairlead.root_run_of(job uuid) returns uuid language sql stable as $$
    select coalesce(j.root_run_id, (
        select coalesce(r.root_run_id, r.id) from fairlead.workflow_runs r where r.id = j.workflow_run_id))
    from fairlead.jobs j where j.id = root_run_of.job
$$;

revoke execute on function fairlead.root_run_of from public;
grant execute on function fairlead.root_run_of to fairlead_tenant;
