-- Failed, dead-lettered and canceled jobs, the newest first by their own index: a bounded number, whatever the history.

-- name: newest
-- Of one tenant, or of all in equal parts. Only the index that begins with the tenant has this order: with the primary
-- key, the planner would walk through the jobs of all tenants.
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
