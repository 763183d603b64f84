-- name: rate_exceeded
-- More attempts were claimed than a rate admits: in some stretch of time, more than its burst and what flowed in.
-- work of chaos.rated: pg_temp.tries t join fairlead.job_definitions d on d.id = t.definition_id
--     join pg_temp.definition_plans p on p.key = d.key where coalesce(p.rate, p.rate_per_tenant, p.by_key -> 'rate') <> 'null'
with claimed as (
    select 'definition ' || p.key as bucket, p.rate, t.job_id, t.attempt_no, t.started_at
    from pg_temp.definition_plans p join fairlead.job_definitions d on d.key = p.key
    join pg_temp.tries t on t.definition_id = d.id where p.rate is not null
    union all
    select 'definition ' || p.key || ' of tenant ' || t.tenant_id, p.rate_per_tenant, t.job_id, t.attempt_no, t.started_at
    from pg_temp.definition_plans p join fairlead.job_definitions d on d.key = p.key
    join pg_temp.tries t on t.definition_id = d.id where p.rate_per_tenant is not null
    union all
    select 'key ' || l.value || ' of ' || l.definition || ' of tenant ' || l.tenant_id, l.rate, t.job_id, t.attempt_no, t.started_at
    from pg_temp.by_key l join pg_temp.tries t on t.job_id = l.id where jsonb_typeof(l.rate) = 'object'
), start as (
    select c.bucket, c.job_id, c.attempt_no, c.started_at, extract(epoch from c.started_at) as second,
        (c.rate ->> 'limit')::numeric / (c.rate ->> 'per_seconds')::numeric as per_second, (c.rate ->> 'burst')::numeric as burst,
        coalesce((j.payload #>> string_to_array(ltrim(c.rate ->> 'cost', '/'), '/'))::numeric, 1) as cost
    from claimed c join fairlead.job_records j on j.id = c.job_id
), spent as (
    select s.*, sum(s.cost) over (partition by s.bucket order by s.started_at, s.job_id, s.attempt_no)
        - s.per_second * s.second as level
    from start s
), stretch as (
    -- the most that was spent beyond the inflow since any start before
    select p.bucket, p.started_at, p.burst, p.level - min(p.level - p.cost) over (
        partition by p.bucket order by p.started_at, p.job_id, p.attempt_no) as taken
    from spent p
)
select s.bucket, 'until ' || max(s.started_at) || ' the starts took ' || round(max(s.taken), 3)
    || ' more than had flowed in; the burst is ' || s.burst
from stretch s where s.taken > s.burst + 0.000001 group by s.bucket, s.burst;
