-- When a suspect starts, by the rates of its scopes and the limits of its key: now, and its tokens are taken, or (null) not
-- now. It holds the locks of both until the claim ends, and does not wait for them.
create or replace function fairlead.start_alone(job uuid) returns timestamptz language plpgsql volatile as $$
#variable_conflict use_column
declare
    all_of constant uuid := '00000000-0000-0000-0000-000000000000';
    about record;
    room record;
    moment timestamptz;
    running bigint;
begin
    select j.tenant_id, j.definition_id, j.limit_key, j.payload, d.by_key, s.rate as system_rate into about
    from fairlead.job_records j, fairlead.job_definitions d, fairlead.system s
    where j.id = start_alone.job and d.id = j.definition_id;
    select r.* into room
    from fairlead.rate_room(array[about.tenant_id], array[about.definition_id], about.system_rate, '{}', null) r;
    if room.missed <> '{}' then
        return null;
    end if;
    moment := clock_timestamp();
    -- as in spend_rates: a job that costs more than the bucket holds starts when the bucket is full
    update fairlead.rate_buckets k set needed = fairlead.cost_of(b.rate ->> 'cost', about.payload)
    from jsonb_to_recordset(room.buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
    where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of
        and fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment) + 1e-9
            < least(fairlead.cost_of(b.rate ->> 'cost', about.payload), (b.rate ->> 'burst')::float8);
    if found then
        return null;
    end if;
    if about.limit_key is not null and about.by_key is not null then
        insert into fairlead.key_locks (definition_id, tenant_id, limit_key)
        select about.definition_id, about.tenant_id, about.limit_key
        where pg_try_advisory_xact_lock(
            fairlead.key_lock_of(about.definition_id, about.tenant_id, about.limit_key))
        on conflict do nothing;
        perform from fairlead.key_locks k
        where k.definition_id = about.definition_id and k.tenant_id = about.tenant_id and k.limit_key = about.limit_key
        for update skip locked;
        if not found then
            return null;
        end if;
        select count(*) into running from fairlead.leases l
        where l.definition_id = about.definition_id and l.tenant_id = about.tenant_id and l.limit_key = about.limit_key;
        if running >= (about.by_key ->> 'max_running')::integer then
            return null;
        end if;
        if (about.by_key -> 'fifo')::boolean and (exists (
                select from fairlead.ready r
                where r.definition_id = about.definition_id and r.tenant_id = about.tenant_id
                    and r.limit_key = about.limit_key and r.job_id < start_alone.job)
            or exists (
                select from fairlead.later l
                where l.definition_id = about.definition_id and l.tenant_id = about.tenant_id
                    and l.limit_key = about.limit_key and l.job_id < start_alone.job)) then
            return null;
        end if;
        -- later than the ends that were counted
        moment := clock_timestamp();
        if jsonb_typeof(about.by_key -> 'rate') = 'object' then
            insert into fairlead.rate_buckets as b (definition_id, tenant_id, limit_key, tokens, counted_at)
            values (about.definition_id, about.tenant_id, about.limit_key,
                (about.by_key -> 'rate' ->> 'burst')::float8 - 1, moment)
            on conflict (definition_id, tenant_id, limit_key) do update
            set tokens = fairlead.tokens_in(b.tokens, b.counted_at, about.by_key -> 'rate', moment) - 1, counted_at = moment
            where fairlead.tokens_in(b.tokens, b.counted_at, about.by_key -> 'rate', moment) + 1e-9 >= 1;
            if not found then
                return null;
            end if;
        end if;
    end if;
    update fairlead.rate_buckets k
    set tokens = fairlead.tokens_in(k.tokens, k.counted_at, b.rate, moment)
            - fairlead.cost_of(b.rate ->> 'cost', about.payload), counted_at = moment, needed = 1
    from jsonb_to_recordset(room.buckets) as b(definition_id uuid, tenant_id uuid, rate jsonb)
    where k.definition_id = b.definition_id and k.tenant_id = b.tenant_id and k.limit_key = all_of;
    return moment;
end
$$;

revoke execute on function fairlead.start_alone from public;
