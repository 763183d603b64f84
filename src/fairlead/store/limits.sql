-- Rates and limits by key, what is left of each, and what it holds back. Every count is bounded, and read from an index.

-- name: page
-- The limits after a place: the system's, those of tenants by slug, those of definitions by key. A job that is due waits for a
-- rate in ready; it is held back if the rate allows no start now.
with wanted as materialized (
    select l.* from (
        select '1' as place, 'system' as scope, null::uuid as definition_id, null::text as definition_key,
            null::uuid as tenant_id, null::text as tenant, s.rate, null::jsonb as by_key
        from fairlead.system s where s.rate is not null and %(definition_id)s::uuid is null
        union all
        select '2 ' || t.slug, 'tenant', null, null, t.id, t.slug, t.rate, null
        from fairlead.tenants t
        where t.rate is not null and t.placement in ('here', 'leaving') and %(definition_id)s::uuid is null
            and (%(tenant_id)s::uuid is null or t.id = %(tenant_id)s)
        union all
        select '3 ' || d.key || ' ' || one.n, one.scope, d.id, d.key, null, null, one.rate, one.by_key
        from fairlead.job_definitions d cross join lateral (values
            ('1', 'definition', d.rate, null::jsonb), ('2', 'definition_tenant', d.rate_per_tenant, null),
            ('3', 'key', null, d.by_key)) as one(n, scope, rate, by_key)
        where coalesce(one.rate, one.by_key) is not null and (d.is_active or d.only_tenants is null)
            and (%(definition_id)s::uuid is null or d.id = %(definition_id)s)
            and (%(tenant_id)s::uuid is null or d.only_tenants is null or %(tenant_id)s = any(d.only_tenants))
    ) l
    where l.place collate "C" > %(after)s order by l.place collate "C" limit %(limit)s
)
select w.place, w.scope, w.definition_id, w.definition_key, w.tenant_id, w.tenant, w.rate, w.by_key, state.opens_at,
    case when w.scope = 'tenant' or w.scope in ('system', 'definition') and %(tenant_id)s::uuid is null
        then coalesce(state.tokens, (w.rate ->> 'burst')::integer) end as tokens,
    coalesce(held.number, 0) as held
from wanted w
left join lateral (
    select fairlead.rate_opens_at(w.definition_id, w.tenant_id, w.rate, clock_timestamp()) as opens_at, (
        select greatest(0, floor(fairlead.tokens_in(b.tokens, b.counted_at, w.rate, clock_timestamp()) + 1e-9))::integer
        from fairlead.rate_buckets b
        where b.definition_id = coalesce(w.definition_id, '00000000-0000-0000-0000-000000000000')
            and b.tenant_id = coalesce(w.tenant_id, '00000000-0000-0000-0000-000000000000')
            and b.limit_key = '00000000-0000-0000-0000-000000000000') as tokens
    where w.scope in ('system', 'tenant', 'definition')) state on true
left join lateral (
    select count(*) as number from (
        (select from fairlead.ready r where w.scope = 'system' and %(tenant_id)s::uuid is null limit %(most)s + 1)
        union all
        (select from fairlead.ready r
         where (w.scope = 'tenant' or w.scope = 'system' and %(tenant_id)s::uuid is not null)
            and r.host_id is null and r.tenant_id = coalesce(w.tenant_id, %(tenant_id)s) limit %(most)s + 1)
        union all
        (select from fairlead.ready r
         where w.scope = 'definition' and %(tenant_id)s::uuid is null and r.host_id is null and r.priority > -2147483648
            and r.definition_id = w.definition_id limit %(most)s + 1)
        union all
        (select from fairlead.ready r
         where w.scope = 'definition' and %(tenant_id)s::uuid is not null and r.host_id is null
            and r.tenant_id = %(tenant_id)s and r.definition_id = w.definition_id limit %(most)s + 1)
        union all
        -- jobs of hosts
        (select from fairlead.hosts h cross join lateral (
            select from fairlead.ready r
            where r.host_id = h.id and r.tenant_id = h.tenant_id
                and (w.scope <> 'definition' or r.definition_id = w.definition_id) limit %(most)s + 1) r
         where (w.scope in ('tenant', 'definition') or w.scope = 'system' and %(tenant_id)s::uuid is not null)
            and (coalesce(w.tenant_id, %(tenant_id)s) is null or h.tenant_id = coalesce(w.tenant_id, %(tenant_id)s))
         limit %(most)s + 1)
        limit %(most)s + 1) due
    where state.opens_at is not null) held on true
order by w.place collate "C";

-- name: tenants_of
-- Of definitions with a rate for each tenant: the tenants with due jobs whose rate is closed, and how many jobs wait. Looks at
-- `look` tenants of each definition.
with recursive hop as (
    select d.id as definition_id, coalesce(%(tenant_id)s::uuid, first.tenant_id) as tenant_id, 1 as n
    from unnest(%(definitions)s::uuid[]) as d(id) cross join lateral (
        select r.tenant_id from fairlead.ready r
        where r.host_id is null and r.priority > -2147483648 and r.definition_id = d.id
        order by r.definition_id, r.tenant_id limit 1) first
    union all
    select h.definition_id, next.tenant_id, h.n + 1 from hop h cross join lateral (
        select r.tenant_id from fairlead.ready r
        where r.host_id is null and r.priority > -2147483648 and r.definition_id = h.definition_id
            and r.tenant_id > h.tenant_id
        order by r.definition_id, r.tenant_id limit 1) next
    where %(tenant_id)s::uuid is null and h.n < %(look)s
)
select h.definition_id, h.tenant_id, t.slug as tenant, o.opens_at, due.number as held, due.first_job,
    (sum(due.number) over definition)::bigint as total, max(h.n) over definition = %(look)s as is_cut
from hop h
join fairlead.job_definitions d on d.id = h.definition_id
join fairlead.tenants t on t.id = h.tenant_id
cross join lateral (
    select fairlead.rate_opens_at(d.id, t.id, d.rate_per_tenant, clock_timestamp()) as opens_at) o
cross join lateral (
    select count(*) as number, (array_agg(r.job_id order by r.n))[1] as first_job from (
        select r.job_id, row_number() over () as n from (
            select r.job_id from fairlead.ready r
            where r.host_id is null and r.tenant_id = t.id and r.definition_id = d.id
            order by r.tenant_id, r.definition_id, r.priority, r.scheduled_for, r.job_id limit %(most)s + 1) r) r) due
where o.opens_at is not null and due.number > 0
window definition as (partition by h.definition_id)
order by h.definition_id, due.number desc, t.slug;

-- name: keys_of
-- Of definitions with a limit by key: the keys that hold jobs back. Looks at `look` keys of each definition, of one tenant or
-- (null) all.
with recursive hop as (
    select first.*, 1 as n
    from unnest(%(definitions)s::uuid[]) as d(id) cross join lateral (
        select l.definition_id, l.tenant_id, l.limit_key from fairlead.later l
        where l.held and l.definition_id = d.id and (%(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s)
        order by l.definition_id, l.tenant_id, l.limit_key limit 1) first
    union all
    select next.*, h.n + 1 from hop h cross join lateral (
        select l.definition_id, l.tenant_id, l.limit_key from fairlead.later l
        where l.held and l.definition_id = h.definition_id and (l.tenant_id, l.limit_key) > (h.tenant_id, h.limit_key)
            and (%(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s)
        order by l.definition_id, l.tenant_id, l.limit_key limit 1) next
    where h.n < %(look)s
), counted as (
    select h.*, due.number, row_number() over (partition by h.definition_id order by due.number desc, h.n) as rank,
        sum(due.number) over (partition by h.definition_id) as total, max(h.n) over (partition by h.definition_id) as keys
    from hop h cross join lateral (
        select count(*) as number from (
            select from fairlead.later l
            where l.held and l.definition_id = h.definition_id and l.tenant_id = h.tenant_id
                and l.limit_key = h.limit_key limit %(most)s + 1) l) due
)
select c.definition_id, c.tenant_id, t.slug as tenant, c.number as held, first.job_id as first_job, (
        select count(*) from fairlead.leases l
        where l.definition_id = c.definition_id and l.tenant_id = c.tenant_id and l.limit_key = c.limit_key) as running, (
        select case when fairlead.tokens_in(b.tokens, b.counted_at, d.by_key -> 'rate', clock_timestamp()) < 1
            then fairlead.next_token_at(b.tokens, b.counted_at, d.by_key -> 'rate', 1) end
        from fairlead.rate_buckets b
        where b.definition_id = c.definition_id and b.tenant_id = c.tenant_id and b.limit_key = c.limit_key
            and jsonb_typeof(d.by_key -> 'rate') = 'object') as opens_at,
    d.by_key ->> 'pointer' as pointer, d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    -- a long text is not shown
    case when jsonb_typeof(v.value) in ('string', 'number', 'boolean') and length(v.value::text) <= 200
        then v.value end as value,
    c.total::bigint as total, c.keys = %(look)s as is_cut
from counted c
join fairlead.tenants t on t.id = c.tenant_id
join fairlead.job_definitions d on d.id = c.definition_id
cross join lateral (
    select l.job_id from fairlead.later l
    where l.held and l.definition_id = c.definition_id and l.tenant_id = c.tenant_id and l.limit_key = c.limit_key
    order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id limit 1) first
join fairlead.job_records j on j.id = first.job_id
cross join lateral (select j.payload #> fairlead.path_of_pointer(d.by_key ->> 'pointer') as value) v
where c.rank <= %(parts)s
order by c.definition_id, c.rank;
