-- Whether this actor is a trigger for the end of jobs or runs. Triggers are never deleted, so their event is always known.
create or replace function fairlead.listens_to_ends(actor text) returns boolean language sql stable as $$
    select exists (
        select from fairlead.job_triggers g
        where (g.event_name like 'job.%' or g.event_name like 'workflow.%')
            and g.id = case when listens_to_ends.actor ~ '^trigger:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                then substr(listens_to_ends.actor, 9)::uuid end)
$$;

revoke execute on function fairlead.listens_to_ends from public;
grant execute on function fairlead.listens_to_ends to fairlead_tenant;
