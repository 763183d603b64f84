-- Whether a trigger for the end of a job or run created this job, or one of the jobs and runs that led to it. `limit 1`
-- makes the planner look up each row by key, whatever the tables' statistics.
create or replace function fairlead.follows_an_end(job uuid) returns boolean language sql stable as $$
    with recursive line as (
        -- a job, the job that created it, and so on; the bound ends a cycle
        select follows_an_end.job as id, 1 as length
        union all
        select above.id, l.length + 1
        from line l cross join lateral (
            select coalesce(j.parent_id, (
                select r.started_by_job from fairlead.workflow_runs r where r.id = j.workflow_run_id)) as id
            from fairlead.jobs j where j.id = l.id limit 1) above
        where above.id is not null and l.length < 100
    )
    select exists (
        select from line l
        cross join lateral (
            select j.created_by, r.created_by as run_by
            from fairlead.jobs j left join fairlead.workflow_runs r on r.id = j.workflow_run_id
            where j.id = l.id limit 1) made
        cross join lateral unnest(array[made.created_by, made.run_by]) as actor(name)
        where fairlead.listens_to_ends(actor.name))
$$;

revoke execute on function fairlead.follows_an_end from public;
grant execute on function fairlead.follows_an_end to fairlead_tenant;
