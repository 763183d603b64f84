-- The use of quotas by tenants. Nothing here locks a tenant: two concurrent transactions may both take the last free
-- place.

-- name: room
-- For each tenant and each run with its number of new jobs: the refusal, or null.
select a.tenant_id as id, fairlead.room_of(a.tenant_id, a.jobs, %(settings)s) as refusal
from unnest(%(tenants)s::uuid[], %(tenant_jobs)s::bigint[]) as a(tenant_id, jobs)
union all
select a.run_id, fairlead.room_in_run(
    (select coalesce(r.root_run_id, r.id) from fairlead.workflow_runs r where r.id = a.run_id), a.jobs, %(settings)s)
from unnest(%(runs)s::uuid[], %(run_jobs)s::bigint[]) as a(run_id, jobs);

-- name: roots
-- The root runs of jobs that belong to one.
select p.id, f.root from unnest(%(jobs)s::uuid[]) as p(id)
cross join lateral (select fairlead.root_run_of(p.id) as root offset 0) f where f.root is not null;

-- name: belong
-- Assigns new jobs to root runs.
with job as (
    update fairlead.job_records j set root_run_id = b.root
    from unnest(%(jobs)s::uuid[], %(roots)s::uuid[]) as b(id, root) where j.id = b.id
    returning j.root_run_id, j.tenant_id
)
insert into fairlead.run_jobs (root_run_id, tenant_id, jobs)
select root_run_id, tenant_id, count(*) from job group by root_run_id, tenant_id;

-- name: quotas
select t.quotas from fairlead.tenants t where t.id = %(tenant_id)s;

-- name: change
-- An earlier count used the old quotas.
with changed as (
    update fairlead.tenants set quotas = %(quotas)s, updated_at = clock_timestamp()
    where id = %(tenant_id)s and quotas <> %(quotas)s returning id
)
update fairlead.tenant_use u set roomy_until = '-infinity' from changed where u.tenant_id = changed.id;

-- name: triggers
-- The number of a tenant's triggers, counted up to a bound.
select count(*) from (
    select from fairlead.job_triggers t where t.tenant_id = %(tenant_id)s and t.deleted_at is null limit %(most)s) t;

-- name: tokens
-- The number of a tenant's valid tokens, counted up to a bound.
select count(*) from (
    select from fairlead.tokens t where t.tenant_id = %(tenant_id)s and t.revoked_at is null
        and (t.expires_at is null or t.expires_at > clock_timestamp()) limit %(most)s) t;

-- name: stored_bytes
select u.stored_bytes from fairlead.tenant_use u where u.tenant_id = %(tenant_id)s;

-- name: measure
-- Estimates the bytes of the next tenants' jobs: their number, times the average size of the newest ones. It does not read
-- TOAST values. Returns the last of the tenants.
with tenant as materialized (
    select t.id, t.quotas from fairlead.tenants t
    where t.id > %(place)s order by t.id limit %(limit)s
), measured as materialized (
    select t.id, t.quotas, round(j.average + coalesce(l.average, 0) + coalesce(s.average, 0)) as average, n.jobs
    from tenant t
    cross join lateral (
        select coalesce(sum(p.jobs), 0) as jobs from (
            select l.queued + l.running + l.succeeded + l.failed + l.dead_letter + l.canceled as jobs
            from fairlead.count_levels l where l.tenant_id = t.id
            union all
            select c.queued + c.running + c.succeeded + c.failed + c.dead_letter + c.canceled
            from fairlead.counts c where not c.leveled and c.tenant_id = t.id) p) n
    cross join lateral (
        select array_agg(j.id) as ids, coalesce(avg(j.size), 0) as average, count(*) as number from (
            select j.id, pg_column_size(j.payload) + coalesce(pg_column_size(j.output), 0)
                + coalesce(pg_column_size(j.error), 0) + coalesce(pg_column_size(j.progress), 0) as size
            from fairlead.jobs j where j.tenant_id = t.id order by j.tenant_id, j.id desc limit %(look)s) j) j
    left join lateral (
        select sum(pg_column_size(c.text)) / nullif(j.number, 0)::numeric as average
        from fairlead.log_chunks c where c.job_id = any(j.ids)) l on true
    left join lateral (
        -- the steps and signals of durable functions; a function may have very many
        select sum(p.size) / nullif(j.number, 0)::numeric as average from (
            (select coalesce(pg_column_size(s.result), 0) + coalesce(pg_column_size(s.error), 0)
                + coalesce(pg_column_size(s.request), 0) as size
            from fairlead.job_steps s where s.job_id = any(j.ids) limit %(look_steps)s)
            union all
            (select coalesce(pg_column_size(g.data), 0)
            from fairlead.job_signals g where g.job_id = any(j.ids) limit %(look_steps)s)) p) s on true
), noted as (
    insert into fairlead.tenant_use as u (tenant_id, stored_bytes, measured_at)
    select m.id, greatest(0, m.average * m.jobs), clock_timestamp() from measured m order by m.id
    on conflict (tenant_id) do update
    set stored_bytes = excluded.stored_bytes, measured_at = excluded.measured_at,
        -- a tenant over its limit must not pass on an earlier count
        roomy_until = case when excluded.stored_bytes >= fairlead.quota_of(
            (select m.quotas from measured m where m.id = excluded.tenant_id), %(settings)s, 'stored_bytes')
            then '-infinity' else u.roomy_until end
)
select max(id::text)::uuid from tenant having count(*) = %(limit)s;
