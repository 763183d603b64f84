-- Of the jobs that a claim has chosen, those that may start beside the running ones with the same key. The others are held
-- back: they wait in later, due at 'infinity', until release_keys lets them go.
--
-- Each key is counted under the lock of its row in key_locks, which the claim holds until it ends. A claim never waits for
-- one: jobs of a key that another transaction holds stay where they are, and `busy` is true.
create or replace function fairlead.keep_keys(inout ready_rows tid[], out busy boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
    keys jsonb;
    held jsonb;
    kept tid[];
begin
    busy := false;
    select jsonb_agg(distinct jsonb_build_object('definition_id', r.definition_id, 'tenant_id', r.tenant_id,
        'limit_key', r.limit_key, 'most', (d.by_key ->> 'max_running')::integer))
    into keys
    from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
    where r.ctid = any(keep_keys.ready_rows) and r.limit_key is not null and d.by_key -> 'max_running' is not null;
    if keys is null then
        return;
    end if;

    -- in one order: two claims that insert the same keys wait for each other for a moment, and never in a circle
    insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
    select k.definition_id, k.tenant_id, k.limit_key
    from jsonb_to_recordset(keys) as k(definition_id uuid, tenant_id uuid, limit_key uuid)
    where not exists (
        select from fairlead.key_locks o
        where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
    order by k.definition_id, k.tenant_id, k.limit_key
    on conflict do nothing;

    select jsonb_agg(h.k) into held from (
        select to_jsonb(k) as k
        from jsonb_to_recordset(keys) as k(definition_id uuid, tenant_id uuid, limit_key uuid, most integer)
        join fairlead.key_locks o using (definition_id, tenant_id, limit_key)
        for update of o skip locked) h;
    busy := coalesce(jsonb_array_length(held), 0) < jsonb_array_length(keys);

    -- a new statement, which sees all leases that ended or began before the locks were free
    with key as materialized (
        select k.*, (
            select count(*) from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as running
        from jsonb_to_recordset(coalesce(held, '[]')) as k(definition_id uuid, tenant_id uuid, limit_key uuid, most integer)
    ), chosen as (
        select r.ctid as spot, r.definition_id, r.tenant_id, r.limit_key, d.by_key -> 'max_running' is null as is_free,
            row_number() over (
                partition by r.definition_id, r.tenant_id, r.limit_key order by r.priority, r.scheduled_for, r.job_id) as place
        from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
        where r.ctid = any(keep_keys.ready_rows)
    ), sorted as (
        select c.spot, case when c.limit_key is null or c.is_free then true else c.place <= k.most - k.running end as may_start
        from chosen c left join key k using (definition_id, tenant_id, limit_key)
    ), parked as (
        delete from fairlead.ready r
        where r.ctid = any(array(select s.spot from sorted s where not s.may_start))
        returning r.job_id, r.tenant_id, r.definition_id, r.host_id, r.priority, r.limit_key
    ), waiting as (
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, limit_key)
        select p.job_id, p.tenant_id, p.definition_id, p.host_id, p.priority, 'infinity', p.limit_key from parked p
    )
    select array_agg(s.spot) filter (where s.may_start) into kept from sorted s;
    ready_rows := kept;
end
$$;

revoke execute on function fairlead.keep_keys from public;
