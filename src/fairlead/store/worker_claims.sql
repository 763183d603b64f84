-- A claim that has an id takes jobs once. The transaction that takes them writes its row. If the worker has hung up, the
-- server releases the jobs, but only after it has removed the row; a repetition marks the row, and then the jobs stay.

-- name: note
-- Returns no row if the id was used before; waits for a claim that is using it now.
insert into fairlead.worker_claims (worker_id, claim_id, token, jobs)
values (%(worker)s, %(claim_id)s, %(token)s, %(jobs)s)
on conflict do nothing returning true;

-- name: repeat
update fairlead.worker_claims set repeated = true
where worker_id = %(worker)s and claim_id = %(claim_id)s
returning token, jobs;

-- name: forget_one
delete from fairlead.worker_claims where worker_id = %(worker)s and claim_id = %(claim_id)s;

-- name: withdraw
delete from fairlead.worker_claims
where worker_id = %(worker)s and token = any(%(tokens)s::uuid[]) and not repeated;

-- name: kept
-- A separate statement: it sees the rows that were marked while `withdraw` waited.
select token from fairlead.worker_claims where worker_id = %(worker)s and token = any(%(tokens)s::uuid[]);

-- name: held
-- The leases of the claim that still exist, expired or not.
select l.job_id, l.attempt_no, l.token from fairlead.leases l
where l.job_id = any(%(jobs)s::uuid[]) and l.token = %(token)s
    and (%(tenant_id)s::uuid is null or l.tenant_id = %(tenant_id)s)
order by l.job_id;

-- name: is_any_lost
select exists (
    select from fairlead.job_attempts a
    where a.job_id = any(%(jobs)s::uuid[]) and a.token = %(token)s and a.status = 'lost');

-- name: uncharge
-- The worker never got these jobs, so none of them can have killed it. A job that has ended stays as it is.
with charged as (
    update fairlead.lost_workers w set charged_job = null, charged_attempt = null
    from fairlead.job_attempts a
    where w.worker_id = %(worker)s and w.charged_job = any(%(jobs)s::uuid[])
        and a.job_id = w.charged_job and a.attempt_no = w.charged_attempt
        and a.token = %(token)s and a.status = 'lost'
    returning a.job_id
)
update fairlead.job_records j set lost_count = greatest(0, j.lost_count - 1)
from charged c where j.id = c.job_id and j.status <= 'running'
returning j.id;

-- name: forget
delete from fairlead.worker_claims where made_at < clock_timestamp() - interval '1 hour';
