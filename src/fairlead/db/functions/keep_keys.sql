-- Of the jobs that a claim has chosen, those that may start: beside the running ones with the same key, and by the rate of
-- their key. The others are held back: they wait in later until release_keys lets them go.
--
-- Each key is counted under the lock of its row in key_locks, which the claim holds until it ends. A claim never waits for
-- one: jobs of a key that another transaction holds stay where they are, and `is_locked` is true. `held` is how many it
-- held back, and `moment` the time of the starts if a key has a rate.
create or replace function fairlead.keep_keys(
    inout ready_rows tid[], out is_locked boolean, out held integer, out moment timestamptz
) language plpgsql volatile set enable_hashjoin = on as $$
#variable_conflict use_column
declare
    -- the keys of the jobs, one place in each array; and those of them that this claim has locked
    definitions uuid[];
    tenants uuid[];
    limit_keys uuid[];
    number integer;
    has_rates boolean;
    in_order boolean;
    parked tid[];
begin
    is_locked := false;
    held := 0;
    select array_agg(k.definition_id), array_agg(k.tenant_id), array_agg(k.limit_key),
        bool_or(jsonb_typeof(d.by_key -> 'rate') = 'object'), bool_or((d.by_key -> 'fifo')::boolean)
    into definitions, tenants, limit_keys, has_rates, in_order
    from (
        select r.definition_id, r.tenant_id, r.limit_key from fairlead.ready r
        where r.ctid = any(keep_keys.ready_rows) and r.limit_key is not null
        group by r.definition_id, r.tenant_id, r.limit_key) k
    join fairlead.job_definitions d on d.id = k.definition_id
    where d.by_key is not null;
    if definitions is null then
        return;
    end if;
    number := cardinality(definitions);

    -- Inserting a row that another claim inserts now would wait for its commit: the try lock skips such rows. Some keys share
    -- a lock: the server has room for some thousands. A row that is new is locked.
    with known as (
        select o.definition_id, o.tenant_id, o.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        cross join lateral (
            select o.* from fairlead.key_locks o
            where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key
            for update skip locked) o
    ), added as (
        insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
        select k.definition_id, k.tenant_id, k.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        where case when not exists (
                select from fairlead.key_locks o
                where o.definition_id = k.definition_id and o.tenant_id = k.tenant_id and o.limit_key = k.limit_key)
            then pg_try_advisory_xact_lock(fairlead.key_lock_of(k.definition_id, k.tenant_id, k.limit_key)) end
        on conflict do nothing
        returning definition_id, tenant_id, limit_key
    )
    select array_agg(h.definition_id), array_agg(h.tenant_id), array_agg(h.limit_key) into definitions, tenants, limit_keys
    from (select * from known union all select * from added) h;
    if in_order then
        -- A key in strict order waits with its oldest job: who holds that one now may cancel it, and would not see the jobs
        -- that this claim held back.
        select array_agg(k.definition_id), array_agg(k.tenant_id), array_agg(k.limit_key) into definitions, tenants, limit_keys
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
        cross join lateral (select case when (d.by_key -> 'fifo')::boolean then least((
            select r.job_id from fairlead.ready r
            where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
            order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1), (
            select l.job_id from fairlead.later l
            where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
            order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)) end as job_id) oldest
        where oldest.job_id is null
            or exists (
                select from fairlead.ready r
                where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                    and r.job_id = oldest.job_id
                for update skip locked)
            or exists (
                select from fairlead.later l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                    and l.job_id = oldest.job_id
                for update skip locked);
    end if;
    is_locked := coalesce(cardinality(definitions), 0) < number;
    if has_rates then
        insert into fairlead.rate_buckets as rate_buckets (definition_id, tenant_id, limit_key)
        select k.definition_id, k.tenant_id, k.limit_key
        from unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
        where jsonb_typeof(d.by_key -> 'rate') = 'object'
        -- locks it
        on conflict (definition_id, tenant_id, limit_key) do update set wake_at = rate_buckets.wake_at;
    end if;

    -- a new statement, which sees all leases that ended or began before the locks were free; its clock is later than they
    with clock as materialized (
        select clock_timestamp() as now
    ), key as materialized (
        select k.definition_id, k.tenant_id, k.limit_key, (d.by_key ->> 'max_running')::integer - (
                select count(*) from fairlead.leases l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key) as room,
            case when has_rates and jsonb_typeof(d.by_key -> 'rate') = 'object' then (
                select floor(fairlead.tokens_in(b.tokens, b.counted_at, d.by_key -> 'rate', clock.now) + 1e-9)
                from fairlead.rate_buckets b
                where b.definition_id = k.definition_id and b.tenant_id = k.tenant_id and b.limit_key = k.limit_key)
                end as tokens,
            -- in strict order: no job starts before an older one that still waits, be it for a retry
            case when (d.by_key -> 'fifo')::boolean then least((
                select r.job_id from fairlead.ready r
                where r.definition_id = k.definition_id and r.tenant_id = k.tenant_id and r.limit_key = k.limit_key
                    and r.ctid <> all(keep_keys.ready_rows)
                order by r.definition_id, r.tenant_id, r.limit_key, r.job_id limit 1), (
                select l.job_id from fairlead.later l
                where l.definition_id = k.definition_id and l.tenant_id = k.tenant_id and l.limit_key = k.limit_key
                order by l.definition_id, l.tenant_id, l.limit_key, l.job_id limit 1)) end as oldest_waiting
        from clock, unnest(definitions, tenants, limit_keys) as k(definition_id, tenant_id, limit_key)
        join fairlead.job_definitions d on d.id = k.definition_id
    ), chosen as (
        select r.ctid as spot, r.job_id, r.definition_id, r.tenant_id, r.limit_key,
            r.limit_key is null or d.by_key is null as is_free,
            row_number() over (
                partition by r.definition_id, r.tenant_id, r.limit_key
                order by case when (d.by_key -> 'fifo')::boolean then 0 else r.priority end,
                    case when (d.by_key -> 'fifo')::boolean then null else r.scheduled_for end, r.job_id) as place
        from fairlead.ready r join fairlead.job_definitions d on d.id = r.definition_id
        where r.ctid = any(keep_keys.ready_rows)
    ), sorted as (
        -- jobs of keys that another transaction holds are in neither list: they stay in ready
        select c.spot, case when c.is_free then true when k.limit_key is not null
            then c.place <= least(k.room, k.tokens) and (k.oldest_waiting is null or c.job_id < k.oldest_waiting) end as may_start
        from chosen c left join key k using (definition_id, tenant_id, limit_key)
    )
    select array_agg(s.spot) filter (where s.may_start), array_agg(s.spot) filter (where not s.may_start), max(clock.now)
    into ready_rows, parked, moment
    from sorted s, clock;
    held := coalesce(cardinality(parked), 0);
    if not has_rates then
        moment := null;
    else
        update fairlead.rate_buckets b
        set tokens = fairlead.tokens_in(b.tokens, b.counted_at, s.rate, moment) - s.starts, counted_at = moment,
            -- if running jobs have to end first, their ends let the next ones go
            wake_at = case when s.held > 0 and (s.most is null or s.running + s.starts < s.most)
                then fairlead.next_token_at(b.tokens, b.counted_at, s.rate, 1 + s.starts) else b.wake_at end
        from (
            select r.definition_id, r.tenant_id, r.limit_key, d.by_key -> 'rate' as rate,
                (d.by_key ->> 'max_running')::integer as most, count(*) filter (where c.starts) as starts,
                count(*) filter (where not c.starts) as held, (
                select count(*) from fairlead.leases l
                where l.definition_id = r.definition_id and l.tenant_id = r.tenant_id and l.limit_key = r.limit_key)
                as running
            from (
                select unnest(ready_rows) as spot, true as starts union all select unnest(parked), false) c
            cross join lateral (select r.* from fairlead.ready r where r.ctid = c.spot) r
            join fairlead.job_definitions d on d.id = r.definition_id
            where jsonb_typeof(d.by_key -> 'rate') = 'object'
            group by r.definition_id, r.tenant_id, r.limit_key, d.by_key) s
        where b.definition_id = s.definition_id and b.tenant_id = s.tenant_id and b.limit_key = s.limit_key;
    end if;
    if held > 0 then
        with gone as (
            delete from fairlead.ready r where r.ctid = any(parked)
            returning r.job_id, r.tenant_id, r.definition_id, r.host_id, r.priority, r.limit_key
        )
        insert into fairlead.later (job_id, tenant_id, definition_id, host_id, priority, due_at, held, limit_key)
        select p.job_id, p.tenant_id, p.definition_id, p.host_id, p.priority, j.scheduled_for, true, p.limit_key
        from gone p cross join lateral (
            select j.scheduled_for from fairlead.job_records j where j.id = p.job_id limit 1) j;
    end if;
end
$$;

revoke execute on function fairlead.keep_keys from public;
