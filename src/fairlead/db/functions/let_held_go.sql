-- Lets the first held jobs of a key go: as many as may run at once. An enqueue does this that has taken jobs out of the key's
-- line. It neither looks at the room nor takes the key's lock, which the ends of jobs would wait for until the enqueue
-- commits: a claim counts under the lock, and holds them back again if there is none.
create or replace function fairlead.let_held_go(definition uuid, tenant uuid, limit_key uuid, by_key jsonb)
returns void language plpgsql volatile as $$
#variable_conflict use_column
declare
    most constant integer := coalesce((by_key ->> 'max_running')::integer, 1);
    fifo constant boolean := coalesce((by_key -> 'fifo')::boolean, false);
begin
    with due as (
        delete from fairlead.later where ctid = any(array(
            -- each in the order of an index
            (select o.spot from (
                select l.ctid as spot from fairlead.later l
                where not fifo and l.held and l.definition_id = definition and l.tenant_id = tenant
                    and l.limit_key = let_held_go.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id
                limit most for update skip locked) o)
            union all
            (select o.spot from (
                select l.ctid as spot from fairlead.later l
                where fifo and l.held and l.definition_id = definition and l.tenant_id = tenant
                    and l.limit_key = let_held_go.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id
                limit most for update skip locked) o)))
        returning job_id, tenant_id, definition_id, host_id, priority, limit_key
    )
    insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
    select u.job_id, u.tenant_id, u.definition_id, u.host_id, u.priority, j.at, u.limit_key
    from due u cross join lateral (
        select greatest(j.scheduled_for, j.queued_at) as at from fairlead.job_records j
        where j.id = u.job_id limit 1) j;
    if found then
        perform fairlead.notify_in_transaction('ready');
    end if;
end
$$;

revoke execute on function fairlead.let_held_go from public;
grant execute on function fairlead.let_held_go to fairlead_tenant;
