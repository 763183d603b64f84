-- How long it took until work went on after each fault: rows (kind, seconds).

-- name: of_workers
-- From the hit on a worker to the next start of each job that it lost. `first`: of jobs that had lost no worker before;
-- otherwise of suspects, which start alone on an idle worker.
select e.kind, next.at - e.hit_at
from pg_temp.explained_losses e
cross join lateral (
    select s.at from pg_temp.starts s where s.job_id = e.job_id and s.attempt_no > e.attempt_no and s.at > e.hit_at
    order by s.attempt_no limit 1) next
where %(first)s = not exists (
        select from pg_temp.tries t where t.job_id = e.job_id and t.attempt_no < e.attempt_no and t.status = 'lost')
    -- after an outage of PostgreSQL, workers get a lease's time to report before anything counts as lost
    and not exists (
        select from pg_temp.faults f where f.kind ~ 'postgres|disk' and f.at < next.at and f.over_at > e.hit_at);

-- name: of_database
-- From the moment at which PostgreSQL accepts connections again to the next start of any job.
select f.kind, next.at - f.over_at
from (select distinct f.place, f.kind, f.over_at from pg_temp.faults f where f.kind ~ 'postgres|disk') f
cross join lateral (select min(s.at) as at from pg_temp.starts s where s.at > f.over_at) next
where next.at is not null;

-- name: of_servers
-- From the hit on a server to the next acknowledged call over HTTP that began after it.
select f.kind, next.at - f.at
from (
    select distinct f.place, f.kind, f.at from pg_temp.faults f join pg_temp.process_starts p on p.pid = f.pid
    where p.role = 'server') f
cross join lateral (
    select min(c.answered_at) as at from pg_temp.calls c
    where c.at > f.at and c.outcome = 'ok' and c.what ->> 'via' = 'http') next
where next.at is not null;

-- name: of_schedulers
-- How late the firings were whose instants fell into the time from the hit on a scheduler to ten seconds after it was over.
select f.kind, extract(epoch from max(g.fired_at - g.scheduled_at))::float8
from (
    select distinct f.place, f.kind, f.at, f.over_at from pg_temp.faults f join pg_temp.process_starts p on p.pid = f.pid
    where p.role = 'scheduler') f
join fairlead.trigger_firings g on g.scheduled_at between to_timestamp(f.at + %(offset)s)
    and to_timestamp(f.over_at + %(offset)s) + interval '10 s'
group by f.place, f.kind;

-- name: of_labels
-- From the moment at which the worker with the label is started with it again to the next start of a job that needs it.
select f.kind, next.at - f.over_at
from (select distinct f.place, f.kind, f.over_at from pg_temp.faults f where f.kind = 'wrong_labels') f
cross join lateral (
    select min(s.at) as at from pg_temp.starts s join pg_temp.definition_plans p on p.key = s.definition
    where p.requires is not null and s.at > f.over_at) next
where next.at is not null;

-- name: of_connections
-- From the end of a fault that hit no process of the run to the next acknowledged call that began after it.
select f.kind, next.at - f.over_at
from pg_temp.faults f
cross join lateral (
    select min(c.answered_at) as at from pg_temp.calls c where c.at > f.over_at and c.outcome = 'ok') next
where f.pid is null and f.kind !~ 'postgres|disk' and next.at is not null;
