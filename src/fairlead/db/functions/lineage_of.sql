-- The triggers that led to a job, in the order in which they fired. The last is the trigger that created the job or the
-- nearest job above it (its parent, or the job that started its run); before it come those of the event that fired that
-- trigger. `limit 1` makes the planner look up each row by key, whatever the tables' statistics.
create or replace function fairlead.lineage_of(job uuid) returns uuid[] language sql stable as $$
    with recursive line as (
        select j.* from (select) as always cross join lateral (
            select j.parent_id, j.workflow_run_id, j.created_by, j.source, j.source_ref, 1 as length
            from fairlead.jobs j where j.id = lineage_of.job limit 1) j
        union all
        select above.*, l.length + 1
        from line l
        cross join lateral (
            select coalesce(l.parent_id, (
                select r.started_by_job from fairlead.workflow_runs r where r.id = l.workflow_run_id)) as id) up
        cross join lateral (
            select j.parent_id, j.workflow_run_id, j.created_by, j.source, j.source_ref
            from fairlead.jobs j where j.id = up.id limit 1) above
        -- up to the first trigger; the bound ends a cycle
        where coalesce(l.created_by, '') not like 'trigger:%' and l.length < 100
    )
    select coalesce((
        select coalesce((
                select e.lineage from fairlead.events e
                where e.id = case when l.source = 'event' and l.source_ref ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    then l.source_ref::uuid end), '{}')
            || substr(l.created_by, 9)::uuid
        from line l
        where l.created_by ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' order by l.length limit 1), '{}')
$$;

revoke execute on function fairlead.lineage_of from public;
grant execute on function fairlead.lineage_of to fairlead_tenant;
