-- Removes rows that mean nothing any more. Enqueues do not need it: they take over such rows themselves.

-- name: free_over
-- A job that is being retried by hand has its record locked, and keeps its key.
with over as materialized (
    select k.ctid as spot from (
        select k.ctid, k.tenant_id, k.key_hash, k.job_id from fairlead.active_keys k
        where k.unique_until <= (select clock_timestamp()) order by k.unique_until, k.tenant_id, k.key_hash offset 0) k
    where not exists (select from fairlead.job_records j where j.id = k.job_id)
        or exists (
            select from fairlead.job_records j where j.id = k.job_id and j.status > 'running' for share skip locked)
    limit %(limit)s
)
delete from fairlead.active_keys k
where k.ctid = any(array(select spot from over)) and k.unique_until <= clock_timestamp()
returning k.job_id;

-- name: forget_debounced
delete from fairlead.debounces where ctid = any(array(
    select d.ctid from fairlead.debounces d
    where d.due_at < (select clock_timestamp()) - interval '1 hour' and not exists (
        select from fairlead.job_records j where j.id = d.job_id and j.status = 'queued' and j.attempt_count = 0)
    limit %(limit)s for update skip locked))
returning job_id;
