-- A lease is (job, attempt, token), as in queue.sql: every statement names all three.

-- name: owned
-- By the attempt, which outlives the lease.
select a.tenant_id, j.host_id, d.key as definition_key, a.worker_id, j.max_attempts, j.failure_count, j.lost_count, d.backoff,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    case when d.secret_paths <> '{}' or j.secret_paths is not null then j.payload end as payload
from fairlead.attempts a
join fairlead.jobs j on j.id = a.job_id
join fairlead.job_definitions d on d.id = j.definition_id
where a.job_id = %(job_id)s and a.attempt_no = %(attempt_no)s and a.token = %(token)s;

-- name: remaining
select extract(epoch from expires_at - clock_timestamp())::float8 from fairlead.leases
where job_id = %(job_id)s and attempt_no = %(attempt_no)s and token = %(token)s and expires_at > clock_timestamp();

-- name: held
-- The leases of one tenant (null: of any), and of these definitions (null: of any).
select l.job_id, l.attempt_no, l.token, l.worker_id
from unnest(%(jobs)s::uuid[], %(attempts)s::int[], %(tokens)s::uuid[]) as o(job_id, attempt_no, token)
join fairlead.leases l on l.job_id = o.job_id and l.attempt_no = o.attempt_no and l.token = o.token
join fairlead.job_definitions d on d.id = l.definition_id
where l.tenant_id = coalesce(%(tenant_id)s, l.tenant_id) and (%(keys)s::text[] is null or d.key = any(%(keys)s::text[]));

-- name: owner_seen
-- A worker with a hundred jobs renews a hundred leases, so this updates its time only now and then.
update fairlead.job_workers set last_seen_at = clock_timestamp()
where worker_id = any(%(workers)s::text[]) and last_seen_at < clock_timestamp() - interval '5 seconds';

-- name: any_ready
select true from fairlead.ready r where r.host_id is null and r.tenant_id = %(tenant_id)s limit 1;
