-- name: key_limit_exceeded
-- More jobs of a key ran at once than its limit admits.
-- work of chaos.line: pg_temp.by_key l join pg_temp.tries t on t.job_id = l.id where l.max_running is not null
with change as (
    select l.definition, l.tenant_id, l.value, l.max_running, c.at, c.difference
    from pg_temp.by_key l join pg_temp.tries t on t.job_id = l.id
    cross join lateral (values (t.started_at, 1), (t.finished_at, -1)) as c(at, difference)
    where l.max_running is not null and c.at is not null and t.started_at < coalesce(t.finished_at, 'infinity')
), level as (
    -- an end comes before a start of the same moment
    select c.*, sum(c.difference) over (
        partition by c.definition, c.tenant_id, c.value order by c.at, c.difference rows unbounded preceding) as running
    from change c
)
select l.definition || ' ' || l.value, 'at ' || max(l.at) || ' ' || l.running || ' jobs of the key ran at once; the limit is '
    || l.max_running
from level l where l.difference = 1 and l.running > l.max_running
group by l.definition, l.value, l.max_running, l.running;

-- name: key_overtaken
-- A job of a key in strict order started before an older one had ended.
-- work of chaos.line: pg_temp.by_key n join pg_temp.by_key o
--     on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value
--     and o.id < n.id where n.fifo and n.started is not null
select n.id, 'started at ' || n.started || ', before the older job ' || min(o.id::text) || ' of its key '
    || n.value || ', acknowledged at ' || min(o.known) || ', had ended'
from pg_temp.by_key n join pg_temp.by_key o
    on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value and o.id < n.id
where n.fifo and o.known + make_interval(secs => %(tolerance)s) < n.started
    and coalesce(o.ended, 'infinity') > n.started
group by n.id, n.started, n.value;

-- name: key_stood_still
-- A key was free, and its job waited for long while younger jobs of other keys started.
-- work of chaos.line: pg_temp.by_key where max_running = 1 and started is not null
with line as (
    select l.*, (
        -- since when nothing of the key ran before it
        select greatest(l.due, max(t.finished_at), max(o.ended) filter (where o.ended < l.started)) from pg_temp.by_key o
        left join pg_temp.tries t on t.job_id = o.id and t.finished_at < l.started
        where o.definition = l.definition and o.tenant_id = l.tenant_id and o.value = l.value and o.id <> l.id) as free_since
    from pg_temp.by_key l where l.max_running = 1
)
select l.id, 'its key ' || l.value || ' was free from ' || l.free_since || ', it started at ' || l.started || ', and '
    || count(*) || ' jobs that came later had started long before'
from line l join pg_temp.by_key y on y.definition = l.definition and y.tenant_id = l.tenant_id and y.value <> l.value
where l.started > l.free_since + interval '30 s' and y.due > l.free_since + interval '5 s'
    and y.started < l.started - interval '20 s'
group by l.id, l.value, l.free_since, l.started;

-- name: dropped_for_other_key
-- An enqueue was dropped for a job of another key.
-- work of chaos.drop_new: pg_temp.asked a join pg_temp.definition_plans p on p.key = a.definition
--     where p.by_key ->> 'strategy' = 'drop_new' and a.outcome = 'ok' and a.is_duplicate
select a.call_id, 'was answered with job ' || coalesce(a.answered_job::text, 'none') || ', which has not its key '
    || (a.plan ->> 'customer')
from pg_temp.asked a join pg_temp.definition_plans p on p.key = a.definition and p.by_key ->> 'strategy' = 'drop_new'
where a.outcome = 'ok' and a.is_duplicate and not exists (
    select from pg_temp.by_key l
    where l.id = a.answered_job and l.definition = a.definition and l.tenant_id = a.tenant_id
        and l.value = a.plan ->> 'customer');

-- name: not_dropped
-- Jobs of a key waited or ran beside each other, although the younger one should have been dropped.
-- work of chaos.drop_new: pg_temp.by_key n join pg_temp.by_key o
--     on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value
--     where n.strategy = 'drop_new' and o.known < n.began
select n.id, 'was created although job ' || min(o.id::text) || ' of its key ' || n.value || ' waited or ran until '
    || coalesce(max(o.ended)::text, 'the end')
from pg_temp.by_key n join pg_temp.by_key o
    on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value and o.id <> n.id
where n.strategy = 'drop_new' and o.known + make_interval(secs => %(tolerance)s) < n.began
    and coalesce(o.ended, 'infinity') > n.known + make_interval(secs => %(tolerance)s)
group by n.id, n.value;

-- name: not_replaced
-- A job of a key still waited after a younger one should have replaced it, or ran on without being asked to stop.
-- work of chaos.replace_queued: pg_temp.by_key n join pg_temp.by_key o
--     on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value
--     where n.strategy in ('replace_queued', 'cancel_running') and o.known < n.began
select o.id, 'waited or ran on unasked after job ' || min(n.id::text) || ' of its key ' || o.value
    || ' was acknowledged at ' || min(n.known)
from pg_temp.by_key n join pg_temp.by_key o
    on o.definition = n.definition and o.tenant_id = n.tenant_id and o.value = n.value and o.id <> n.id
join fairlead.job_records j on j.id = o.id
where n.strategy in ('replace_queued', 'cancel_running')
    and o.known + make_interval(secs => %(tolerance)s) < n.began
    and coalesce(o.ended, 'infinity') > n.known + make_interval(secs => %(tolerance)s)
    and case n.strategy when 'replace_queued' then coalesce(o.started, 'infinity')
        else coalesce(j.cancel_requested_at, 'infinity') end > n.known + make_interval(secs => %(tolerance)s)
group by o.id, o.value;
