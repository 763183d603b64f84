-- Of the jobs that a claim has chosen, those that may start: beside the running ones with the same key, and by the rate of
-- their key. The others are held back: they wait in later until release_keys lets them go.
--
-- Each key is counted under the lock of its row in key_locks, which the claim holds until it ends. A claim never waits for
-- one: jobs of a key that another transaction holds stay where they are, and `is_locked` is true. `held` is how many it
-- held back, and `moment` the time of the starts if a key has a rate.
create or replace function fairlead.keep_keys(
    inout ready_rows tid[], out is_locked boolean, out held integer, out moment timestamptz
) language plpgsql volatile as $$
#variable_conflict use_column
declare
    keys jsonb;
    locked jsonb;
    most_new constant integer := 64;
    has_rates boolean;
    kept tid[];
begin
    is_locked := false;
    held := 0;
    select jsonb_agg(distinct jsonb_build_object(
            'definition_id', r.definition_id, 'tenant_id', r.tenant_id, 'limit_key', r.limit_key, 'by_key', d.by_key)),
        bool_or(jsonb_typeof(d.by_key -> 'rate') = 'object')
    into keys, has_rates
    from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
    where r.ctid = any(keep_keys.ready_rows) and r.limit_key is not null and d.by_key is not null;
    if keys is null then
        return;
    end if;

    -- Inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows. Not too many of
    -- these locks: the server has room for some thousands.
    insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
    select k.definition_id, k.tenant_id, k.limit_key
    from (
        select k.* from jsonb_to_recordset(keys) as k(definition_id uuid, tenant_id uuid, limit_key uuid)
        where not exists (
            select from fairlead.key_locks o
            where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
        limit most_new) k
    where pg_try_advisory_xact_lock(
        hashtextextended(concat_ws(' ', 'fairlead.key_locks', k.definition_id, k.tenant_id, k.limit_key), 0))
    on conflict do nothing;

    select jsonb_agg(h.k) into locked from (
        select to_jsonb(k) as k
        from jsonb_to_recordset(keys) as k(definition_id uuid, tenant_id uuid, limit_key uuid, by_key jsonb)
        join fairlead.key_locks o using (definition_id, tenant_id, limit_key)
        for update of o skip locked) h;
    is_locked := coalesce(jsonb_array_length(locked), 0) < jsonb_array_length(keys);
    if has_rates then
        insert into fairlead.rate_buckets (definition_id, tenant_id, limit_key)
        select k.definition_id, k.tenant_id, k.limit_key
        from jsonb_to_recordset(coalesce(locked, '[]')) as k(definition_id uuid, tenant_id uuid, limit_key uuid, by_key jsonb)
        where jsonb_typeof(k.by_key -> 'rate') = 'object'
        on conflict do nothing;
        perform from jsonb_to_recordset(coalesce(locked, '[]')) as k(definition_id uuid, tenant_id uuid, limit_key uuid)
        join fairlead.rate_buckets b using (definition_id, tenant_id, limit_key)
        for update of b;
    end if;

    -- a new statement, which sees all leases that ended or began before the locks were free; its clock is later than they
    with clock as materialized (
        select clock_timestamp() as now
    ), key as materialized (
        select k.*, (k.by_key ->> 'max_running')::integer as most, bucket.tokens, bucket.spot as bucket, (
            select count(*) from fairlead.leases l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as running,
            -- in strict order: no job starts before an older one that still waits, be it for a retry
            case when (k.by_key -> 'fifo')::boolean then least((
                select r.job_id from fairlead.ready r
                where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                    and r.ctid <> all(keep_keys.ready_rows)
                order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1), (
                select l.job_id from fairlead.later l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)) end as oldest_waiting
        from jsonb_to_recordset(coalesce(locked, '[]')) as k(definition_id uuid, tenant_id uuid, limit_key uuid, by_key jsonb)
        left join lateral (
            select b.ctid as spot, floor(
                fairlead.tokens_in(b.tokens, b.counted_at, k.by_key -> 'rate', clock.now) + 1e-9) as tokens
            from fairlead.rate_buckets b, clock
            where has_rates and jsonb_typeof(k.by_key -> 'rate') = 'object'
                and b.definition_id = k.definition_id and b.tenant_id = k.tenant_id and b.limit_key = k.limit_key) bucket on true
    ), chosen as (
        select r.ctid as spot, r.job_id, r.definition_id, r.tenant_id, r.limit_key, d.by_key is null as is_free,
            row_number() over (
                partition by r.definition_id, r.tenant_id, r.limit_key
                order by case when (d.by_key -> 'fifo')::boolean then 0 else r.priority end,
                    case when (d.by_key -> 'fifo')::boolean then null else r.scheduled_for end, r.job_id) as place
        from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
        where r.ctid = any(keep_keys.ready_rows)
    ), sorted as (
        select c.spot, k.bucket, k.by_key, k.most, k.running, case when c.limit_key is null or c.is_free then true
            else c.place <= least(k.most - k.running, k.tokens)
                and (k.oldest_waiting is null or c.job_id < k.oldest_waiting) end as may_start
        from chosen c left join key k using (definition_id, tenant_id, limit_key)
    ), parked as (
        delete from fairlead.ready r
        where r.ctid = any(array(select s.spot from sorted s where not s.may_start))
        returning r.job_id, r.tenant_id, r.definition_id, r.host_id, r.priority, r.limit_key
    ), waiting as (
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, held, limit_key)
        select p.job_id, p.tenant_id, p.definition_id, p.host_id, p.priority, j.scheduled_for, true, p.limit_key
        from parked p cross join lateral (
            select j.scheduled_for from fairlead.job_records j where j.id = p.job_id limit 1) j
    ), spent as (
        update fairlead.rate_buckets b
        set tokens = fairlead.tokens_in(b.tokens, b.counted_at, s.rate, clock.now) - s.starts, counted_at = clock.now,
            -- if running jobs have to end first, their ends let the next ones go
            wake_at = case when s.held > 0 and (s.most is null or s.running + s.starts < s.most)
                then fairlead.next_token_at(b.tokens, b.counted_at, s.rate, 1 + s.starts) else b.wake_at end
        from clock, (
            select s.bucket, s.by_key -> 'rate' as rate, s.most, s.running, count(*) filter (where s.may_start) as starts,
                count(*) filter (where not s.may_start) as held
            from sorted s where s.bucket is not null group by 1, 2, 3, 4) s
        where b.ctid = s.bucket
    )
    select array_agg(s.spot) filter (where s.may_start), count(*) filter (where not s.may_start),
        case when has_rates then max(clock.now) end
    into kept, held, moment
    from sorted s, clock;
    ready_rows := kept;
end
$$;

revoke execute on function fairlead.keep_keys from public;
