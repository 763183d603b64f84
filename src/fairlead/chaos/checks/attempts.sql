-- name: attempt_gap
-- A job's attempts are not numbered 1, 2, 3 … up to its attempt count.
-- work: fairlead.job_records
select j.id, 'expected the attempts 1 to ' || j.attempt_count || ', found '
    || coalesce(string_agg(t.attempt_no::text, ', ' order by t.attempt_no), 'none')
from fairlead.job_records j left join pg_temp.tries t on t.job_id = j.id and t.status <> 'running'
group by j.id, j.attempt_count
having count(distinct t.attempt_no) <> j.attempt_count
    or coalesce(max(t.attempt_no), 0) <> j.attempt_count or coalesce(min(t.attempt_no), 1) <> 1;

-- name: attempt_repeated
-- A job has two attempts of the same number.
-- work: pg_temp.tries
select t.job_id, 'expected one attempt ' || t.attempt_no || ', found ' || count(*)
from pg_temp.tries t group by t.job_id, t.attempt_no having count(*) > 1;

-- name: attempt_without_job
-- An attempt belongs to a job that does not exist.
-- work: pg_temp.tries
select t.job_id, 'attempt ' || t.attempt_no || ' is recorded, but there is no such job'
from pg_temp.tries t where t.tenant_id is null;

-- name: attempts_overlap
-- Two attempts of a job were alive at the same time in the database. An attempt can be claimed only after the end of the
-- one before it was committed, and so after the time that this end was given.
-- work: pg_temp.tries where attempt_no > 1
select t.job_id, 'attempt ' || t.attempt_no || ' was claimed at ' || t.started_at || ', before attempt '
    || before.attempt_no || ' ended at ' || before.finished_at
from pg_temp.tries t join pg_temp.tries before on before.job_id = t.job_id and before.attempt_no = t.attempt_no - 1
where t.started_at < before.finished_at;

-- name: start_repeated
-- A handler began the same attempt twice.
-- work: pg_temp.starts
select s.job_id, 'expected one start of attempt ' || s.attempt_no || ', found ' || count(*)
from pg_temp.starts s group by s.job_id, s.attempt_no having count(*) > 1;

-- name: start_unrecorded
-- A handler began an attempt that the tables do not have.
-- work: pg_temp.starts
select s.job_id, 'a handler began attempt ' || s.attempt_no || ', which is not in the tables'
from pg_temp.starts s
where not exists (select from pg_temp.tries t where t.job_id = s.job_id and t.attempt_no = s.attempt_no);

-- name: handlers_overlap
-- A handler was still running long after the next attempt's handler had begun, although no fault hit its process. A worker
-- that cannot renew its leases stops its handlers before they end; a stopped process cannot, and one that is short of
-- processor time may be late.
-- work: pg_temp.ends e join pg_temp.starts s on s.job_id = e.job_id and s.attempt_no = e.attempt_no + 1
select s.job_id, 'attempt ' || s.attempt_no || ' ran for ' || round((e.at - later.at)::numeric, 1)
    || ' s beside attempt ' || later.attempt_no
from pg_temp.starts s
join pg_temp.ends e on e.job_id = s.job_id and e.attempt_no = s.attempt_no
join pg_temp.starts later on later.job_id = s.job_id and later.attempt_no = s.attempt_no + 1
where e.at > later.at + %(lease_seconds)s / 2 and not exists (
    select from pg_temp.faults f where f.pid = s.pid and f.at < e.at and f.over_at > s.at);
