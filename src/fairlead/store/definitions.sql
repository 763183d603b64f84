-- Definitions are found by key and never deleted; every change increments the version. Only the tenants in only_tenants
-- can use a definition that was registered for tenants; it is not listed when nothing registers it any more.

-- name: every
select * from fairlead.job_definitions where is_active or only_tenants is null order by key;

-- name: page
-- By key, after the last one of the previous page.
select * from fairlead.job_definitions
where key > %(after)s and (is_active or only_tenants is null)
    and (%(tenant_id)s::uuid is null or only_tenants is null or %(tenant_id)s = any(only_tenants))
order by key limit %(limit)s;

-- name: get
select * from fairlead.job_definitions where key = %(name)s or id = fairlead.as_id(%(name)s);

-- name: by_keys
select * from fairlead.job_definitions where key = any(%(keys)s);

-- name: ids
select key, id from fairlead.job_definitions where (%(keys)s::text[] is null or key = any(%(keys)s::text[]))
    and (%(tenant_id)s::uuid is null or only_tenants is null or %(tenant_id)s = any(only_tenants));

-- name: hold_new
select fairlead.hold_new_definition(fairlead.definition_id(%(key)s));

-- name: put
-- Does not change gates (paused_at). Returns no row if nothing changes.
insert into fairlead.job_definitions as d (
    id, key, description, kind, arg_schema, timeout_seconds, max_attempts, backoff, max_running,
    max_running_per_tenant, rate, rate_per_tenant, by_key, slots, requires, prefers, default_priority, resource_pointer, audit_action, retention_days,
    is_active, secret_paths, engine, queue)
values (
    fairlead.definition_id(%(key)s), %(key)s, %(description)s, %(kind)s, %(arg_schema)s, %(timeout_seconds)s, %(max_attempts)s, %(backoff)s,
    %(max_running)s, %(max_running_per_tenant)s, %(rate)s, %(rate_per_tenant)s, %(by_key)s, %(slots)s, %(requires)s, %(prefers)s, %(default_priority)s, %(resource_pointer)s, %(audit_action)s,
    %(retention_days)s, %(is_active)s, %(secret_paths)s, %(engine)s, %(queue)s)
on conflict (key) do update set
    description = excluded.description, kind = excluded.kind, arg_schema = excluded.arg_schema,
    timeout_seconds = excluded.timeout_seconds, max_attempts = excluded.max_attempts,
    backoff = excluded.backoff, max_running = excluded.max_running,
    max_running_per_tenant = excluded.max_running_per_tenant, rate = excluded.rate,
    rate_per_tenant = excluded.rate_per_tenant, by_key = excluded.by_key, slots = excluded.slots, requires = excluded.requires,
    prefers = excluded.prefers, default_priority = excluded.default_priority,
    resource_pointer = excluded.resource_pointer, audit_action = excluded.audit_action,
    retention_days = excluded.retention_days, is_active = excluded.is_active, secret_paths = excluded.secret_paths,
    engine = excluded.engine, queue = excluded.queue, version = d.version + 1, updated_at = clock_timestamp()
where (d.description, d.kind, d.arg_schema, d.timeout_seconds, d.max_attempts, d.backoff, d.max_running,
       d.max_running_per_tenant, d.rate, d.rate_per_tenant, d.by_key, d.slots, d.requires, d.prefers, d.default_priority, d.resource_pointer, d.audit_action, d.retention_days, d.is_active,
       d.secret_paths, d.engine, d.queue)
    is distinct from
      (excluded.description, excluded.kind, excluded.arg_schema, excluded.timeout_seconds, excluded.max_attempts,
       excluded.backoff, excluded.max_running, excluded.max_running_per_tenant, excluded.rate,
       excluded.rate_per_tenant, excluded.by_key, excluded.slots, excluded.requires, excluded.prefers, excluded.default_priority, excluded.resource_pointer, excluded.audit_action, excluded.retention_days, excluded.is_active,
       excluded.secret_paths, excluded.engine, excluded.queue)
returning *;

-- name: wake_keys
-- After a change of by_key: lets the stager look at each key that holds jobs back, since there may be room for them now. One
-- jump in the index for each key, whatever the number of jobs.
with recursive held as (
    (select l.tenant_id, l.limit_key from fairlead.later l
     where l.held and l.definition_id = %(id)s
     order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id limit 1)
    union all
    select next.tenant_id, next.limit_key from held h cross join lateral (
        select l.tenant_id, l.limit_key from fairlead.later l
        where l.held and l.definition_id = %(id)s and (l.tenant_id, l.limit_key) > (h.tenant_id, h.limit_key)
        order by l.definition_id, l.tenant_id, l.limit_key, l.priority, l.job_id limit 1) next
), locked as (
    -- those that a claim or an end holds are looked at anyway
    select k.tenant_id, k.limit_key from held h
    join fairlead.key_locks k on k.definition_id = %(id)s and k.tenant_id = h.tenant_id and k.limit_key = h.limit_key
    for update of k skip locked
)
insert into fairlead.rate_buckets (definition_id, tenant_id, limit_key, wake_at)
select %(id)s, k.tenant_id, k.limit_key, clock_timestamp() from locked k
on conflict (definition_id, tenant_id, limit_key) do update set wake_at = excluded.wake_at
returning 1;

-- name: hold
select from fairlead.job_definitions where key = %(key)s for no key update;

-- name: share
-- Adds one tenant.
update fairlead.job_definitions set only_tenants = coalesce(only_tenants, '{}') || %(tenant_id)s::uuid, is_active = true,
    version = version + 1, updated_at = clock_timestamp()
where key = %(key)s and (not %(tenant_id)s = any(coalesce(only_tenants, '{}')) or not is_active);

-- name: limit
-- For these tenants only, or (null) for all. Returns no row if nothing changes.
update fairlead.job_definitions set only_tenants = %(tenants)s::uuid[],
    version = version + 1, updated_at = clock_timestamp()
where key = %(key)s and only_tenants is distinct from %(tenants)s::uuid[]
returning *;

-- name: retire
-- A definition of certain tenants that none of their triggers uses.
update fairlead.job_definitions d set is_active = false, version = d.version + 1, updated_at = clock_timestamp()
where d.key = %(key)s and d.only_tenants is not null and not exists (
    select from fairlead.job_triggers g where g.definition_id = d.id and g.deleted_at is null);
