-- Many jobs in one transaction: dedupe keys first, then the jobs that got theirs by COPY, the record
-- before the queue. COPY does not work under row-level security, which applies to all but superusers:
-- then it fills a temporary table, and an INSERT copies from there.

-- name: moment
select clock_timestamp();

-- name: claim_keys
-- Waits for uncommitted holders, in the order of the keys, so that two loads cannot deadlock.
insert into fairlead.active_keys (tenant_id, key_hash, job_id)
select tenant_id, key_hash, job_id
from unnest(%(tenants)s::uuid[], %(hashes)s::bytea[], %(jobs)s::uuid[]) as k(tenant_id, key_hash, job_id)
order by tenant_id, key_hash
on conflict do nothing
returning job_id;

-- name: holders
select k.tenant_id, k.key_hash, k.job_id
from fairlead.active_keys k
join unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]) as asked(tenant_id, key_hash)
    on k.tenant_id = asked.tenant_id and k.key_hash = asked.key_hash;

-- name: bound
select row_security_active('fairlead.job_records');

-- name: stage
create temporary table staged on commit drop as select <columns> from fairlead.<table> with no data;

-- name: copy_staged
copy pg_temp.staged from stdin (format binary)

-- name: move_staged
insert into fairlead.<table> (<columns>) select * from pg_temp.staged;

-- name: unstage
drop table pg_temp.staged;

-- name: copy
copy fairlead.<table> (<columns>) from stdin (format binary)

-- name: count_queued
insert into fairlead.counts (tenant_id, definition_id, minute, queued)
select tenant_id, definition_id, date_trunc('minute', %(moment)s::timestamptz), queued
from unnest(%(tenants)s::uuid[], %(definitions)s::uuid[], %(queued)s::bigint[]) as c(tenant_id, definition_id, queued);
