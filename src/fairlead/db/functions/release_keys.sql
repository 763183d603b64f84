-- Lets go the next jobs of these keys, as many as there is room for. Called after jobs of the keys have ended, in the same
-- transaction, and when the rate of a key allows the next start. It waits for claims and ends of the same keys, which take the locks in the same order or never wait.
-- Returns how many jobs became ready. With `tidy` it deletes the locks of these keys that nothing uses: not at every end of an
-- attempt, since the next job of the key would insert its lock again.
--
-- A job that another transaction has locked, such as an edit or a cancel, stays. That transaction lets the key go on when it
-- commits. But it may be rolled back: the key is looked at again soon.
create or replace function fairlead.release_keys(
    definitions uuid[], tenants uuid[], limit_keys uuid[], tidy boolean default true
) returns bigint
language plpgsql volatile set enable_hashjoin = on as $$
#variable_conflict use_column
declare
    -- the keys that hold jobs back
    held_definitions uuid[];
    held_tenants uuid[];
    held_keys uuid[];
    -- with `tidy`: the locks that nothing uses
    unused tid[];
    released bigint;
    moment timestamptz;
begin
    perform from (
        select distinct k.definition_id, k.tenant_id, k.limit_key
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        where k.limit_key is not null
        order by k.definition_id, k.tenant_id, k.limit_key) k
    cross join lateral (
        select from fairlead.key_locks o
        where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key
        for update) o;

    -- a new statement, which sees what the holders of the locks did
    select array_agg(k.definition_id) filter (where k.is_held), array_agg(k.tenant_id) filter (where k.is_held),
        array_agg(k.limit_key) filter (where k.is_held), array_agg(k.spot) filter (where release_keys.tidy and not k.is_held and not exists (
            select from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key)
            and not exists (
            select from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key))
    into held_definitions, held_tenants, held_keys, unused
    from (
        select k.definition_id, k.tenant_id, k.limit_key, o.spot, exists (
            select from fairlead.later l
            where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                and l.limit_key = k.limit_key) as is_held
        from (
            select distinct k.definition_id, k.tenant_id, k.limit_key
            from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
                as k(definition_id, tenant_id, limit_key)
            where k.limit_key is not null) k
        left join lateral (
            select o.ctid as spot from fairlead.key_locks o
            where release_keys.tidy and o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key) o on true) k;
    if unused is not null then
        delete from fairlead.key_locks o where o.ctid = any(unused);
    end if;
    if exists (select from fairlead.rate_buckets b where b.wake_at is not null) then
        -- keys of which nothing waits any more
        update fairlead.rate_buckets b set wake_at = null
        from unnest(release_keys.definitions, release_keys.tenants, release_keys.limit_keys)
            as k(definition_id, tenant_id, limit_key)
        where b.definition_id = k.definition_id and b.tenant_id = k.tenant_id and b.limit_key = k.limit_key
            and b.wake_at is not null and not exists (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                    and l.limit_key = k.limit_key);
    end if;
    if held_keys is null then
        return 0;
    end if;

    moment := clock_timestamp();
    with key as materialized (
        select k.definition_id, k.tenant_id, k.limit_key, d.by_key,
            coalesce((d.by_key -> 'fifo')::boolean, false) as fifo
        from unnest(held_definitions, held_tenants, held_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
    ), counted as materialized (
        select k.*, (
            select count(*) from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as running, (
            select count(*) from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                -- in strict order, the newer ones take no place: none of them may start before the first held one
                and (not k.fifo or r.job_id < (
                    select l.job_id from fairlead.later l
                    where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id
                        and l.limit_key = k.limit_key
                    order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1))) as ready
        from key k
    ), room as materialized (
        select c.*, b.ctid as bucket,
            -- without a limit any more: some at a time, and their ends let the next ones go
            case when c.by_key is not null then greatest(0, least((c.by_key ->> 'max_running')::integer - c.running,
                case when jsonb_typeof(c.by_key -> 'rate') = 'object'
                    then coalesce(floor(fairlead.tokens_in(b.tokens, b.counted_at, c.by_key -> 'rate', moment) + 1e-9), 1) end) - c.ready)::bigint
                else 1000 end as free
        from counted c left join fairlead.rate_buckets b
            using (definition_id, tenant_id, limit_key)
    ), next as materialized (
        -- how many may go
        select k.definition_id, k.tenant_id, k.limit_key, n.number from room k cross join lateral (
            select count(*) as number from (
                select from fairlead.later l
                where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                limit k.free) l) n
    ), due as (
        delete from fairlead.later where ctid = any(array(
            select l.spot from room k cross join lateral (
                -- each in the order of an index
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
                        and l.job_id <= (
                            select max(o.job_id::text)::uuid from (
                                select l.job_id from fairlead.later l
                                where l.held and l.definition_id = k.definition_id
                                    and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit k.free) o)
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
    ), skipped as (
        select n.definition_id, n.tenant_id, n.limit_key from next n
        where n.number > (select count(*) from due u
            where u.definition_id = n.definition_id and u.tenant_id = n.tenant_id and u.limit_key = n.limit_key)
    ), looked_at_again as (
        insert into fairlead.rate_buckets as rate_buckets (definition_id, tenant_id, limit_key, wake_at)
        select s.definition_id, s.tenant_id, s.limit_key, moment + interval '1 second' from skipped s
        on conflict (definition_id, tenant_id, limit_key) do update
            -- never in the past, or the stager would look again at once, and again
            set wake_at = case when rate_buckets.wake_at > moment then least(rate_buckets.wake_at, excluded.wake_at)
                else excluded.wake_at end
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
            from room k where k.bucket is not null and not exists (
                select from skipped s
                where s.definition_id = k.definition_id and s.tenant_id = k.tenant_id and s.limit_key = k.limit_key)) k
        where b.ctid = k.bucket
    )
    select count(*) into released from moved;
    return released;
end
$$;

revoke execute on function fairlead.release_keys from public;
grant execute on function fairlead.release_keys to fairlead_tenant;
