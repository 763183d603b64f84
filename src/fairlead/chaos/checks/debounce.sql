-- name: debounced_early
-- A debounced job started before its key was quiet for long enough.
-- work of chaos.settled: pg_temp.lives l join pg_temp.asked a on a.answered_job = l.id
--     where a.outcome = 'ok' and a.debounce is not null and l.started is not null
select l.id, 'was claimed at ' || l.started || ', although call ' || a.call_id || ' at ' || a.began || ' put it off by '
    || (a.debounce ->> 'seconds') || ' s'
from pg_temp.lives l join pg_temp.asked a on a.answered_job = l.id and a.outcome = 'ok' and a.debounce is not null
where l.started < least(
    a.began + make_interval(secs => (a.debounce ->> 'seconds')::float8),
    l.began + make_interval(secs => (a.debounce ->> 'max_seconds')::float8)) - make_interval(secs => %(tolerance)s);

-- name: debounce_payload_lost
-- A debounced job has the payload of a call that was answered before a later one.
-- work of chaos.settled: pg_temp.lives l join pg_temp.asked n on n.answered_job = l.id and n.first <> l.first
--     where n.outcome = 'ok' and n.debounce is not null
select l.id, 'has the payload of call ' || a.call_id || ', answered at ' || a.answered || ', although call ' || min(n.call_id::text)
    || ' was made at ' || min(n.began)
from pg_temp.lives l join fairlead.job_records j on j.id = l.id
join pg_temp.asked a on a.answered_job = l.id and a.outcome = 'ok' and a.debounce is not null
    and a.first::text = j.payload ->> 'call'
join pg_temp.asked n on n.answered_job = l.id and n.outcome = 'ok' and n.began > a.answered
group by l.id, a.call_id, a.answered;

-- name: debounced_twice
-- A job was created while another one of its debounce key still waited.
-- work of chaos.settled: pg_temp.lives n join pg_temp.lives o on o.tenant_id = n.tenant_id and o.definition = n.definition
--     and o.debounce ->> 'key' = n.debounce ->> 'key' and o.known < n.began
select n.id, 'was created although job ' || min(o.id::text) || ', acknowledged at ' || min(o.known)
    || ', waited until ' || coalesce(min(least(o.started, o.ended))::text, 'the end')
from pg_temp.lives n join pg_temp.lives o on o.tenant_id = n.tenant_id and o.definition = n.definition and o.id <> n.id
    and o.debounce ->> 'key' = n.debounce ->> 'key' and o.known < n.began
where coalesce(least(o.started, o.ended), 'infinity') > n.known + make_interval(secs => %(tolerance)s)
group by n.id;
