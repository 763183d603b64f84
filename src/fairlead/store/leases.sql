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

-- name: owner_seen
-- A worker with a hundred jobs renews a hundred leases, so this updates its time only now and then.
update fairlead.job_workers set last_seen_at = clock_timestamp()
where worker_id = %(worker_id)s and last_seen_at < clock_timestamp() - interval '5 seconds';

-- name: any_ready
select true from fairlead.ready r where r.host_id is null and r.tenant_id = %(tenant_id)s limit 1;
