-- Upkeep of rates and limits by key: jobs that are held back although their key is free, and rows that nothing uses any more.
-- Each query looks at a bounded number of keys after a place, in the order of an index.

-- name: release_free
-- Looks at `look` keys that hold jobs back, and lets the jobs of those go that are free: after a change of a limit, or if a
-- release was lost. Returns the last key if there are more, and how many jobs became ready.
with recursive held as (
    (select l.definition_id, l.tenant_id, l.limit_key, 1 as n from fairlead.later l
     where l.held and (l.definition_id, l.tenant_id, l.limit_key) > (%(definition_id)s, %(tenant_id)s, %(limit_key)s)
     order by l.definition_id, l.tenant_id, l.limit_key limit 1)
    union all
    select next.definition_id, next.tenant_id, next.limit_key, h.n + 1 from held h cross join lateral (
        select l.definition_id, l.tenant_id, l.limit_key from fairlead.later l
        where l.held and (l.definition_id, l.tenant_id, l.limit_key) > (h.definition_id, h.tenant_id, h.limit_key)
            order by l.definition_id, l.tenant_id, l.limit_key limit 1) next
    where h.n < %(look)s
), free as materialized (
    select h.definition_id, h.tenant_id, h.limit_key
    from held h
    join fairlead.job_definitions d on d.id = h.definition_id
    cross join lateral (
        select count(*) as number from fairlead.leases l
        where l.definition_id = h.definition_id and l.tenant_id = h.tenant_id and l.limit_key = h.limit_key) running
    cross join lateral (
        select count(*) as number from fairlead.ready r
        where r.definition_id = h.definition_id and r.tenant_id = h.tenant_id and r.limit_key = h.limit_key
            -- as release_keys counts them
            and (not coalesce((d.by_key -> 'fifo')::boolean, false) or r.job_id < (
                select l.job_id from fairlead.later l
                where l.held and l.definition_id = h.definition_id and l.tenant_id = h.tenant_id and l.limit_key = h.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1))) ready
    where (d.by_key ->> 'max_running' is null
            or running.number + ready.number < (d.by_key ->> 'max_running')::integer)
        -- also if a rate will let the next one go, but not as soon as it could: release_keys sets that time
        and (jsonb_typeof(d.by_key -> 'rate') is distinct from 'object' or coalesce((
            select fairlead.tokens_in(b.tokens, b.counted_at, d.by_key -> 'rate', clock_timestamp()) + 1e-9 >= 1 + ready.number
                or b.wake_at is null or b.wake_at > interval '1 millisecond' + greatest(clock_timestamp(),
                    fairlead.next_token_at(b.tokens, b.counted_at, d.by_key -> 'rate', 1 + ready.number))
            from fairlead.rate_buckets b
            where b.definition_id = h.definition_id and b.tenant_id = h.tenant_id and b.limit_key = h.limit_key), true))
        -- in strict order: not while an older job waits for its retry
        and (not coalesce((d.by_key -> 'fifo')::boolean, false) or (
            select l.held from fairlead.later l
            where l.definition_id = h.definition_id and l.tenant_id = h.tenant_id and l.limit_key = h.limit_key
            order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1))
), released as (
    select fairlead.release_keys(array_agg(f.definition_id), array_agg(f.tenant_id), array_agg(f.limit_key)) as number
    from free f having count(*) > 0
), last as (
    select * from held order by n desc limit 1
)
select case when l.n = %(look)s then array[l.definition_id, l.tenant_id, l.limit_key] end as place,
    coalesce(r.number, 0) as released
from (select) as always left join last l on true left join released r on true;

-- name: buckets
-- Looks at `look` buckets, and deletes those of a system, tenant or definition that have been full for some time. A claim that
-- misses one counts it as locked, and inserts it again. Returns the last bucket if there are more.
with looked as materialized (
    select b.definition_id, b.tenant_id, b.limit_key from fairlead.rate_buckets b
    where (b.definition_id, b.tenant_id, b.limit_key) > (%(definition_id)s, %(tenant_id)s, %(limit_key)s)
    order by b.definition_id, b.tenant_id, b.limit_key limit %(look)s
), unused as (
    delete from fairlead.rate_buckets where ctid = any(array(
        select b.ctid from looked k join fairlead.rate_buckets b using (definition_id, tenant_id, limit_key)
        where k.limit_key = '00000000-0000-0000-0000-000000000000'
            and fairlead.is_unused_bucket(b.definition_id, b.tenant_id, b.limit_key, b.tokens, b.counted_at, %(seconds)s)
        for update of b skip locked))
), last as (
    select * from looked order by definition_id desc, tenant_id desc, limit_key desc limit 1
)
select case when (select count(*) from looked) = %(look)s then (
    select array[definition_id, tenant_id, limit_key] from last) end as place;

-- name: lock_unused_keys
-- Of the same buckets, those of keys that no job runs of or waits for, locked as a claim locks a new key: without this lock a
-- claim could begin to use a bucket that is then deleted.
with looked as materialized (
    select b.definition_id, b.tenant_id, b.limit_key, b.tokens, b.counted_at, b.wake_at from fairlead.rate_buckets b
    where (b.definition_id, b.tenant_id, b.limit_key) > (%(definition_id)s, %(tenant_id)s, %(limit_key)s)
    order by b.definition_id, b.tenant_id, b.limit_key limit %(look)s
)
select k.definition_id, k.tenant_id, k.limit_key from looked k
where case when k.limit_key <> '00000000-0000-0000-0000-000000000000' and k.wake_at is null
        and fairlead.is_unused_bucket(k.definition_id, k.tenant_id, k.limit_key, k.tokens, k.counted_at, %(seconds)s)
        and not exists (
            select from fairlead.key_locks o
            where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
    then pg_try_advisory_xact_lock(fairlead.key_lock_of(k.definition_id, k.tenant_id, k.limit_key)) end;

-- name: remove_keys
-- A new statement, which sees a key that a claim began to use before it was locked.
delete from fairlead.rate_buckets where ctid = any(array(
    select b.ctid
    from unnest(%(definitions)s::uuid[], %(tenants)s::uuid[], %(keys)s::uuid[]) as k(definition_id, tenant_id, limit_key)
    join fairlead.rate_buckets b using (definition_id, tenant_id, limit_key)
    where b.wake_at is null
        and fairlead.is_unused_bucket(b.definition_id, b.tenant_id, b.limit_key, b.tokens, b.counted_at, %(seconds)s)
        and not exists (
        select from fairlead.key_locks o
        where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
    for update of b skip locked));

-- name: key_locks
-- Looks at `look` locks of keys, and deletes those that nothing uses: release_keys does, under the lock. Returns the last one
-- if there are more.
with looked as materialized (
    select o.definition_id, o.tenant_id, o.limit_key from fairlead.key_locks o
    where (o.definition_id, o.tenant_id, o.limit_key) > (%(definition_id)s, %(tenant_id)s, %(limit_key)s)
    order by o.definition_id, o.tenant_id, o.limit_key limit %(look)s
), unused as materialized (
    select k.* from looked k
    where not exists (
            select from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key)
        and not exists (
            select from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key)
        and not exists (
            select from fairlead.later l
            where l.held and l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key)
), released as (
    select fairlead.release_keys(array_agg(u.definition_id), array_agg(u.tenant_id), array_agg(u.limit_key)) as number
    from unused u having count(*) > 0
), last as (
    select * from looked order by definition_id desc, tenant_id desc, limit_key desc limit 1
)
select case when (select count(*) from looked) = %(look)s then (
    select array[definition_id, tenant_id, limit_key] from last) end as place, (select number from released) as released;
