-- Whether a job is there because something ended: a trigger for ends made it, or what made it in turn. Everything is found by
-- key, whatever the planner thinks of the tables' sizes.
create or replace function fairlead.follows_an_end(job uuid) returns boolean language sql stable as $$
    with recursive line as (
        -- a job, the job that made it, and so on; no circle is that long
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
