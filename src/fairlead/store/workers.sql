-- Workers say that they are there; those that stopped saying so are forgotten.

-- name: seen
insert into fairlead.job_workers as w (
    worker_id, hostname, version, queues, last_seen_at, running_count, concurrency)
values (%(worker_id)s, %(hostname)s, %(version)s, %(keys)s, clock_timestamp(), %(running)s, %(concurrency)s)
on conflict (worker_id) do update
set last_seen_at = clock_timestamp(), running_count = excluded.running_count, queues = excluded.queues;

-- name: page
-- By id, after the one that the page before ended with. Stale: not seen for longer than it should be.
select worker_id, hostname, version, queues, started_at, last_seen_at, running_count, concurrency, metadata,
    last_seen_at < clock_timestamp() - make_interval(secs => %(stale_seconds)s) as stale
from fairlead.job_workers where worker_id > %(after)s order by worker_id limit %(limit)s;

-- name: gone
delete from fairlead.job_workers where worker_id = %(worker_id)s;

-- name: prune
delete from fairlead.job_workers where last_seen_at < clock_timestamp() - make_interval(secs => %(seconds)s);
