-- Lets go the next jobs of these keys, as many as there is room for. Called after jobs of the keys have ended, in the same
-- transaction, and when the rate of a key allows the next start. It waits for claims and ends of the same keys, which take the locks in the same order or never wait.
-- Returns how many jobs became ready.
create or replace function fairlead.release_keys(definitions uuid[], tenants uuid[], limit_keys uuid[]) returns bigint
language plpgsql volatile as $$
#variable_conflict use_column
declare
    released bigint;
    moment timestamptz;
begin
    perform from fairlead.key_locks o
    join (
        select distinct k.definition_id, k.tenant_id, k.limit_key
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        where k.limit_key is not null) k using (definition_id, tenant_id, limit_key)
    order by o.definition_id, o.tenant_id, o.limit_key
    for update of o;

    moment := clock_timestamp();
    -- a new statement, which sees what the holders of the locks did
    with key as materialized (
        select distinct k.definition_id, k.tenant_id, k.limit_key, d.by_key
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
        where k.limit_key is not null
    ), counted as materialized (
        select k.*, (
            select count(*) from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as running, (
            select count(*) from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key) as ready
        from key k
    ), room as materialized (
        select c.*, c.running + c.ready as used, coalesce((c.by_key -> 'fifo')::boolean, false) as fifo, b.ctid as bucket,
            case when c.by_key is not null then greatest(0, least((c.by_key ->> 'max_running')::integer - c.running,
                case when jsonb_typeof(c.by_key -> 'rate') = 'object'
                    then coalesce(floor(fairlead.tokens_in(b.tokens, b.counted_at, c.by_key -> 'rate', moment) + 1e-9), 1) end) - c.ready)::bigint end as free
        from counted c left join fairlead.rate_buckets b
            using (definition_id, tenant_id, limit_key)
    ), due as (
        delete from fairlead.later where ctid = any(array(
            select l.spot from room k cross join lateral (
                -- each in the order of an index; a null limit means all: the definition no longer has limits by key
                (select o.spot from (
                    select l.ctid as spot from fairlead.later l
                    where not k.fifo and l.held and l.definition_id = k.definition_id
                        and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                    order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id
                    limit k.free for update skip locked) o)
                union all
                (select o.spot from (
                    select l.ctid as spot from fairlead.later l
                    where k.fifo and l.held and l.definition_id = k.definition_id
                        and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                    order by l.definition_id, l.tenant_id, l.limit_key, l.job_id
                    limit k.free for update skip locked) o)
            ) l))
        returning job_id, tenant_id, definition_id, host_id, priority, limit_key
    ), moved as (
        insert into fairlead.ready (job_id, tenant_id, definition_id, host_id, priority, scheduled_for, limit_key)
        select u.job_id, u.tenant_id, u.definition_id, u.host_id, u.priority, j.at, u.limit_key
        from due u cross join lateral (
            select greatest(j.scheduled_for, j.queued_at) as at from fairlead.job_records j where j.id = u.job_id limit 1) j
        returning 1
    ), woken as (
        -- jobs that a rate still holds back go on when there is a token that the ready ones leave
        update fairlead.rate_buckets b
        set wake_at = case when jsonb_typeof(k.by_key -> 'rate') = 'object'
            and (k.by_key ->> 'max_running' is null or k.running + k.ready + k.freed < (k.by_key ->> 'max_running')::integer)
            and exists (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                    and l.limit_key = k.limit_key offset k.freed)
            then greatest(moment, fairlead.next_token_at(
                b.tokens, b.counted_at, k.by_key -> 'rate', 1 + k.ready + k.freed)) end
        from (
            select k.*, (select count(*) from due u
                where u.definition_id = k.definition_id and u.tenant_id = k.tenant_id and u.limit_key = k.limit_key) as freed
            from room k where k.bucket is not null) k
        where b.ctid = k.bucket
    ), unused as (
        delete from fairlead.key_locks where ctid = any(array(
            select o.ctid from room k join fairlead.key_locks o using (definition_id, tenant_id, limit_key)
            where k.used = 0 and not exists (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                    and l.limit_key = k.limit_key)))
    )
    select count(*) into released from moved;
    return released;
end
$$;

revoke execute on function fairlead.release_keys from public;
grant execute on function fairlead.release_keys to fairlead_tenant;
