-- name: failure_unfounded
-- An attempt is recorded as a failure, and its handler did not fail.
-- work: pg_temp.tries where status in ('failed', 'timeout')
select t.job_id, 'attempt ' || t.attempt_no || ' is recorded as ' || t.status || ' (' || coalesce(left(a.error_text, 200), 'no error')
    || '); the handler''s end of it: ' || coalesce((select string_agg(e.outcome, ', ') from pg_temp.ends e
        where e.job_id = t.job_id and e.attempt_no = t.attempt_no), 'none')
from pg_temp.tries t
join fairlead.job_attempts a on a.job_id = t.job_id and a.attempt_no = t.attempt_no
join fairlead.job_definitions d on d.id = t.definition_id join pg_temp.definition_plans n on n.key = d.key
join fairlead.tenants s on s.id = t.tenant_id join pg_temp.tenant_plans p on p.slug = s.slug
where t.status in ('failed', 'timeout') and not exists (
    select from pg_temp.ends e
    where e.job_id = t.job_id and e.attempt_no = t.attempt_no and e.outcome in ('failed', 'fatal'));

-- name: failures_overcharged
-- A job was charged with more failures than its attempts had since it was enqueued or retried by hand.
-- work: fairlead.job_records where failure_count > 0
select j.id, 'is charged with ' || j.failure_count || ' failures; its attempts since the last retry had ' || count(t.job_id)
from fairlead.job_records j
left join pg_temp.retries r on r.job_id = j.id
left join pg_temp.tries t on t.job_id = j.id and t.started_at > coalesce(r.last_at, '-infinity')
    and (t.status in ('failed', 'timeout') or t.status = 'canceled' and j.status = 'canceled')
where j.failure_count > 0
group by j.id, j.failure_count having j.failure_count > count(t.job_id);

-- name: losses_overcharged
-- A job was charged with more losses than it had since it was enqueued or retried by hand.
-- work: pg_temp.tries where status = 'lost'
select j.id, 'is charged with ' || j.lost_count || ' lost attempts; since the last retry it lost ' || count(t.job_id)
from fairlead.job_records j
left join pg_temp.retries r on r.job_id = j.id
left join pg_temp.tries t on t.job_id = j.id and t.started_at > coalesce(r.last_at, '-infinity') and t.status = 'lost'
where j.lost_count > 0
group by j.id, j.lost_count having j.lost_count > count(t.job_id);

-- name: charged_beside_others
-- A job was charged with the loss of a worker that ran other jobs, too.
-- work: fairlead.lost_workers where charged_job is not null
select w.charged_job, 'is charged with the loss of worker ' || w.worker_id || ', which lost job ' || min(o.job_id::text)
    || ' at the same time'
from fairlead.lost_workers w
join pg_temp.tries t on t.job_id = w.charged_job and t.attempt_no = w.charged_attempt and t.worker_id = w.worker_id
join pg_temp.tries o on o.worker_id = w.worker_id and o.job_id <> t.job_id and o.status = 'lost'
    and o.started_at < t.finished_at and t.started_at < o.finished_at
group by w.charged_job, w.worker_id;

-- name: condemned_innocent
-- A job became a dead letter although its handler did not fail often enough, and no fault killed its workers.
-- work: pg_temp.planned where status = 'dead_letter' and key <> %(poison)s
with letter as (
    select j.id, j.failure_count, j.max_attempts, j.lost_count, j.last_error, coalesce(r.last_at, '-infinity') as since
    from fairlead.job_records j
    join fairlead.job_definitions d on d.id = j.definition_id join pg_temp.definition_plans n on n.key = d.key
    join fairlead.tenants s on s.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = s.slug
    left join pg_temp.retries r on r.job_id = j.id
    where j.status = 'dead_letter' and d.key <> %(poison)s and j.failure_count < j.max_attempts
)
select l.id, 'failed ' || l.failure_count || ' of ' || l.max_attempts || ' times and was charged with ' || l.lost_count
    || ' losses, of which faults explain ' || count(e.job_id) || ': ' || coalesce(left(l.last_error, 200), 'no error')
from letter l
left join pg_temp.explained_losses e on e.job_id = l.id and e.started_at > l.since
group by l.id, l.failure_count, l.max_attempts, l.lost_count, l.last_error having count(e.job_id) < 3;

-- name: poison_not_contained
-- A job that kills its worker is not a dead letter, or became one only after many workers.
-- work of chaos.poison: pg_temp.planned where key = %(poison)s
select j.id, 'expected a dead letter after a few attempts, found ' || j.status || ' after ' || count(t.job_id)
    || ' lost attempts since it was enqueued or retried'
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id
join fairlead.tenants s on s.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = s.slug
left join pg_temp.retries r on r.job_id = j.id
left join pg_temp.tries t on t.job_id = j.id and t.status = 'lost' and t.started_at > coalesce(r.last_at, '-infinity')
where d.key = %(poison)s
group by j.id, j.status having j.status not in ('dead_letter', 'canceled') or count(t.job_id) > 30;
