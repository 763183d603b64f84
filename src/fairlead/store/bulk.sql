-- Many jobs in one transaction: dedupe keys first, then the jobs that got theirs by COPY, the record
-- before the queue. COPY does not work under row-level security, which applies to all but superusers:
-- then it fills a temporary table, and an INSERT copies from there.

-- name: moment
select clock_timestamp();

-- name: claim_keys
-- Waits for uncommitted holders, in the order of the keys, so that two loads cannot deadlock.
insert into fairlead.active_keys (tenant_id, key_hash, job_id, unique_until)
select tenant_id, key_hash, job_id, clock_timestamp() + make_interval(secs => unique_for)
from unnest(%(tenants)s::uuid[], %(hashes)s::bytea[], %(jobs)s::uuid[], %(unique_for)s::float8[])
    as k(tenant_id, key_hash, job_id, unique_for)
order by tenant_id, key_hash
on conflict do nothing
returning job_id;

-- name: holders
select k.tenant_id, k.key_hash, k.job_id, coalesce(k.unique_until <= clock_timestamp(), false)
from fairlead.active_keys k
join unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]) as asked(tenant_id, key_hash)
    on k.tenant_id = asked.tenant_id and k.key_hash = asked.key_hash;

-- name: free_keys
-- Keys that were kept for a time which is over, and whose jobs have ended. Locked in the order of the keys.
select k.tenant_id, k.key_hash, fairlead.free_key(k.tenant_id, k.key_hash)
from (
    select k.tenant_id, k.key_hash from fairlead.active_keys k
    join unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]) as asked(tenant_id, key_hash)
        on k.tenant_id = asked.tenant_id and k.key_hash = asked.key_hash
    where k.unique_until <= clock_timestamp()
    order by k.tenant_id, k.key_hash
    offset 0) k;

-- name: limit_keys
-- The keys of values by which definitions limit their jobs; each value is JSON, alone in an array.
select fairlead.limit_key_of('{"pointer": "/0"}', v.value::jsonb)
from unnest(%(values)s::text[]) with ordinality as v(value, at) order by v.at;

-- name: bound
-- Whether row-level security applies, and the definitions that limit jobs by key.
select row_security_active('fairlead.job_records'), array(
    select d.id from fairlead.job_definitions d where d.id = any(%(definitions)s) and d.by_key is not null);

-- name: set_keys
with job as (
    update fairlead.job_records j set limit_key = fairlead.limit_key_of(d.by_key, j.payload)
    from fairlead.job_definitions d where j.id = any(%(ids)s) and d.id = j.definition_id
    returning j.id, j.tenant_id, j.definition_id, j.priority, j.scheduled_for, greatest(j.scheduled_for, j.queued_at) as ready_at,
        j.limit_key
), now_ready as (
    update fairlead.ready r set limit_key = j.limit_key
    from job j where r.host_id is null and r.tenant_id = j.tenant_id and r.definition_id = j.definition_id
        and r.priority = j.priority and r.scheduled_for = j.ready_at and r.job_id = j.id
)
update fairlead.later l set limit_key = j.limit_key from job j where l.due_at = j.scheduled_for and l.job_id = j.id;

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
