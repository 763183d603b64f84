-- Jobs that ended badly, the newest first by their own index: so many and no more, whatever the history.

-- name: newest
-- Of one tenant, or of all that have any, in equal parts. In this order no index serves but the one that begins with
-- the tenant: the primary key would lead through everybody's jobs.
with in_trouble as materialized (
    select t.id, t.slug from fairlead.tenants t cross join lateral (
        select from fairlead.jobs j where j.tenant_id = t.id and j.troubled
        order by j.tenant_id desc, j.id desc limit 1) any_job
    where %(tenant_id)s::uuid is null or t.id = %(tenant_id)s
)
select j.id as job_id, t.slug as tenant, d.key as definition_key, j.status, j.finished_at, j.last_error as error,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    case when d.secret_paths <> '{}' or j.secret_paths is not null then j.payload end as payload
from in_trouble t cross join lateral (
    select j.id, j.definition_id, j.status, j.finished_at, j.last_error, j.payload, j.secret_paths
    from fairlead.jobs j
    where j.tenant_id = t.id and j.troubled
    order by j.tenant_id desc, j.id desc
    limit (select greatest(1, %(look)s / count(*)) from in_trouble)) j
join fairlead.job_definitions d on d.id = j.definition_id;
