-- name: succeeded_twice
-- Two attempts of a job are recorded as successes.
-- work: pg_temp.tries where status = 'succeeded'
select t.job_id, 'expected at most one success, found the attempts '
    || string_agg(t.attempt_no::text, ', ' order by t.attempt_no)
from pg_temp.tries t where t.status = 'succeeded' group by t.job_id having count(*) > 1;

-- name: outcome_twice
-- A job ended twice without a retry by hand in between.
-- work: pg_temp.entries where meaning in ('succeeded', 'failed', 'dead_letter', 'canceled')
select f.job_id, 'ended as ' || f.before || ' and then as ' || f.meaning || ' at ' || f.at || ', without a retry in between'
from (
    select e.job_id, e.meaning, e.at, lag(e.meaning) over (partition by e.job_id order by e.place) as before
    from pg_temp.entries e where e.meaning in ('succeeded', 'failed', 'dead_letter', 'canceled', 'retried')) f
where f.meaning <> 'retried' and f.before <> 'retried';

-- name: success_overwritten
-- A job with a successful attempt has another outcome, or went on after it.
-- work: pg_temp.tries where status = 'succeeded'
select j.id, 'attempt ' || t.attempt_no || ' succeeded, but the job is ' || j.status || ' after ' || j.attempt_count || ' attempts'
from pg_temp.tries t join fairlead.job_records j on j.id = t.job_id
where t.status = 'succeeded' and (j.status <> 'succeeded' or j.attempt_count <> t.attempt_no);

-- name: success_unfounded
-- A job succeeded, and no handler ended its last attempt with success.
-- work: fairlead.job_records where status = 'succeeded'
select j.id, 'attempt ' || j.attempt_count || ' is recorded as a success; the handler''s end of it: '
    || coalesce((select string_agg(e.outcome, ', ') from pg_temp.ends e
        where e.job_id = j.id and e.attempt_no = j.attempt_count), 'none')
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id join pg_temp.definition_plans n on n.key = d.key
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where j.status = 'succeeded' and not exists (
    select from pg_temp.ends e where e.job_id = j.id and e.attempt_no = j.attempt_count and e.outcome = 'succeeded');

-- name: outcome_unplanned
-- A job ended as its handler cannot have ended it.
-- work: fairlead.job_records where status in ('succeeded', 'failed')
select j.id, 'a job of ' || d.key || ' is ' || j.status || ' after ' || j.attempt_count || ' attempts: '
    || coalesce(left(j.last_error, 200), 'no error')
from fairlead.job_records j
join fairlead.job_definitions d on d.id = j.definition_id join pg_temp.definition_plans n on n.key = d.key
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where j.status = 'failed' and d.key <> %(fatal)s or j.status = 'succeeded' and d.key in (%(fatal)s, %(poison)s);
