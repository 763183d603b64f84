-- name: key_active_twice
-- Two jobs of a tenant with the same dedupe key were active at the same time.
-- work: (
--     select from fairlead.job_records where dedupe_key is not null group by tenant_id, dedupe_key having count(*) > 1) k
with keyed as (
    select j.id, j.tenant_id, j.dedupe_key, j.queued_at, j.finished_at from fairlead.job_records j
    where j.dedupe_key is not null
), ended as (
    -- every end of each job
    select k.id, e.at from keyed k join pg_temp.entries e on e.job_id = k.id
    where e.meaning in ('succeeded', 'failed', 'dead_letter', 'canceled')
    union all
    select k.id, k.finished_at from keyed k where k.finished_at is not null
), first_end as (
    select e.id, min(e.at) as at from ended e group by e.id
), known as (
    -- when each job was surely active for the first time
    select k.id, least(min(t.started_at), min(a.answered) + make_interval(secs => %(tolerance)s)) as at
    from keyed k
    left join pg_temp.tries t on t.job_id = k.id
    left join pg_temp.asked a on a.answered_job = k.id and a.outcome = 'ok' and not a.is_duplicate
    group by k.id
), moment as (
    select n.id, n.at, 1 as difference from known n left join first_end f on f.id = n.id
    where n.at < coalesce(f.at, 'infinity')
    union all
    select k.id, e.at, 1 from keyed k join pg_temp.entries e on e.job_id = k.id where e.meaning = 'retried'
    union all
    select e.id, e.at, -1 from ended e
), stretch as (
    -- the times in which each job was active
    select m.id, m.at as since, lead(m.at) over (partition by m.id order by m.at, m.difference) as until, m.difference
    from moment m
), active as (
    select k.tenant_id, k.dedupe_key, s.id, s.since, coalesce(s.until, 'infinity') as until
    from stretch s join keyed k on k.id = s.id where s.difference = 1
), beside as (
    select a.*, max(a.until) over w as until_before, max(a.id::text) over w as other
    from active a window w as (
        partition by a.tenant_id, a.dedupe_key order by a.since, a.id rows between unbounded preceding and 1 preceding)
)
select b.id, 'the key ' || b.dedupe_key || ' was held by another job (such as ' || b.other || ') until ' || b.until_before
    || ', but this one was active at ' || b.since
from beside b where b.since < b.until_before and b.since < b.until;

-- name: duplicate_of_other_key
-- A deduplicated answer names a job that does not exist, or has another tenant or key.
-- work: pg_temp.asked where outcome = 'ok' and is_duplicate and dedupe_key is not null
select a.call_id, 'the answer for the key ' || a.dedupe_key || ' named job ' || coalesce(a.answered_job::text, 'none')
    || ', whose key is ' || coalesce(j.dedupe_key, 'none')
from pg_temp.asked a left join fairlead.job_records j on j.id = a.answered_job
where a.outcome = 'ok' and a.is_duplicate
    and (j.id is null or j.tenant_id <> a.tenant_id or j.dedupe_key is distinct from a.dedupe_key);

-- name: duplicate_of_ended_job
-- A deduplicated answer names a job that was not active during the call.
-- work: pg_temp.asked where outcome = 'ok' and is_duplicate
select a.call_id, 'the answer named job ' || j.id || ', which was over at ' || j.finished_at
    || ' or began at ' || j.queued_at || '; the call took from ' || a.began || ' to ' || a.answered
from pg_temp.asked a join fairlead.job_records j on j.id = a.answered_job
where a.outcome = 'ok' and a.is_duplicate
    and (j.finished_at < a.began - make_interval(secs => %(tolerance)s)
        or j.queued_at > a.answered + make_interval(secs => %(tolerance)s))
    -- the key of a job may stay taken after its end
    and not exists (
        select from pg_temp.lives l
        where l.id = j.id and a.began < l.queued_at + l.unique_for + make_interval(secs => %(tolerance)s))
    -- a repetition of a request gets the answer of the first one; a job that was retried was active more than once
    and a.call_id = a.first and not exists (select from pg_temp.retries r where r.job_id = j.id);

-- name: unique_taken_twice
-- A job was created while the key of an earlier one was still to stay taken.
-- work: pg_temp.asked a where a.outcome = 'ok' and exists (
--     select from pg_temp.lives o where o.tenant_id = a.tenant_id and o.dedupe_key = a.dedupe_key and o.first <> a.first
--     and o.unique_for is not null and o.known < a.began)
select n.id, 'was acknowledged at ' || n.known || ', although job ' || min(o.id::text) || ' had the key ' || n.dedupe_key
    || ' until ' || max(o.queued_at + o.unique_for)
from pg_temp.lives n join pg_temp.lives o on o.tenant_id = n.tenant_id and o.dedupe_key = n.dedupe_key and o.id <> n.id
where o.known < n.began and n.known < o.queued_at + o.unique_for - make_interval(secs => %(tolerance)s)
group by n.id, n.known, n.dedupe_key;
