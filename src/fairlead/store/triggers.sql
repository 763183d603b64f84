-- A trigger is never deleted, only marked so: its firings refer to it. next_fire_at is null if it cannot fire by time.

-- name: selected
select g.id, g.tenant_id, t.slug as tenant, t.name as tenant_name, t.timezone as tenant_timezone, g.label, g.is_enabled,
    g.trigger_type, g.event_name, g.filter, g.cron_expr, g.timezone, g.every_seconds, g.start_at, g.end_at,
    g.jitter_seconds, g.definition_id,
    d.key as definition_key, g.payload_template, g.job_options, g.dedupe_window_seconds, g.catch_up, g.overlap, g.owner, g.name,
    g.next_fire_at, g.next_fire_at - g.next_delay as next_instant, g.last_fired_at,
    g.trigger_type = 'schedule' and g.next_fire_at is null
        and (g.is_enabled or coalesce(g.end_at <= statement_timestamp(), false)) as is_over,
    g.created_by, g.created_at, g.updated_at, d.secret_paths,
    case when d.by_key ->> 'strategy' <> 'queue' then d.by_key ->> 'pointer' end as limit_pointer
from fairlead.job_triggers g
join fairlead.tenants t on t.id = g.tenant_id
join fairlead.job_definitions d on d.id = g.definition_id
where g.deleted_at is null and

-- name: by_id
g.id = %(id)s and (%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)

-- name: by_id_held
g.id = %(id)s and (%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)
for update of g

-- name: page
(%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)
and (%(trigger_type)s::text is null or g.trigger_type = %(trigger_type)s)
and (%(event_name)s::text is null or g.event_name = %(event_name)s)
and (%(is_enabled)s::boolean is null or g.is_enabled = %(is_enabled)s)
and (%(definition_key)s::text is null or d.key = %(definition_key)s)
and (%(before)s::uuid is null or g.id < %(before)s)
order by g.id desc limit %(limit)s

-- name: soonest
-- The schedules that run next.
g.is_enabled and g.next_fire_at is not null and (%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)
order by g.next_fire_at, g.id limit %(limit)s

-- name: of_ids
g.id = any(%(ids)s)

-- name: rules
-- What decides which triggers match events of these names and tenants; templates only where they say what is secret.
select g.id, g.tenant_id, g.event_name, g.trigger_type, g.filter::text as filter, d.secret_paths,
    case when d.secret_paths <> '{}' then g.payload_template end as payload_template
from fairlead.job_triggers g join fairlead.job_definitions d on d.id = g.definition_id
where g.is_enabled and g.deleted_at is null
    and (g.tenant_id, g.event_name) in (select * from unnest(%(tenants)s::uuid[], %(names)s::text[]))
order by g.id;

-- name: with_secrets
-- The same triggers, enabled or not, whose jobs have secrets.
(g.tenant_id, g.event_name) in (select * from unnest(%(tenants)s::uuid[], %(names)s::text[]))
and d.secret_paths <> '{}' and (%(after)s::uuid is null or g.id > %(after)s)
order by g.id limit %(limit)s

-- name: due
-- The transaction that locks these rows fires them; it skips rows that another scheduler is firing.
-- The clock is read once, in a subquery, so that it can be a bound for the index scan.
-- The schedules of a tenant that is being moved fire in its new cell.
g.next_fire_at <= (select clock_timestamp()) and t.placement = 'here'
order by g.next_fire_at limit %(limit)s
for update of g skip locked

-- name: named
g.tenant_id = %(tenant_id)s and g.owner = %(owner)s and g.name = %(name)s
for update of g

-- name: of_owners
g.owner = any(%(owners)s)
order by g.id
for update of g

-- name: in_tenants_zone
-- The schedules that use the tenant's time zone.
g.tenant_id = %(tenant_id)s and g.cron_expr is not null and g.timezone is null
order by g.id
for update of g

-- name: labels
select g.id, g.tenant_id, g.label from fairlead.job_triggers g where g.id = any(%(ids)s);

-- name: moment
select clock_timestamp();

-- name: next_due
-- Seconds until the next instant of any trigger.
select extract(epoch from min(next_fire_at) - clock_timestamp())::float8
from fairlead.job_triggers where next_fire_at is not null;

-- name: lead
-- Whether this transaction leads. This only saves the other schedulers work; correctness does not depend on it.
select pg_try_advisory_xact_lock(hashtextextended('fairlead.scheduler', 0)),
    -- a scheduler that stops in the middle of a round must not block the others
    set_config('idle_in_transaction_session_timeout', %(patience)s, true);

-- name: add
insert into fairlead.job_triggers (
    id, tenant_id, label, is_enabled, trigger_type, event_name, filter, cron_expr, timezone, every_seconds, start_at,
    end_at, jitter_seconds, definition_id, payload_template, job_options, dedupe_window_seconds, catch_up, overlap, owner, name,
    next_fire_at, next_delay, created_by)
values (
    %(id)s, %(tenant_id)s, %(label)s, %(is_enabled)s, %(trigger_type)s, %(event_name)s, %(filter)s, %(cron_expr)s, %(timezone)s,
    %(every_seconds)s, %(start_at)s, %(end_at)s, %(jitter_seconds)s, %(definition_id)s, %(payload_template)s, %(job_options)s, %(dedupe_window_seconds)s, %(catch_up)s,
    %(overlap)s, %(owner)s, %(name)s, %(next_fire_at)s, %(next_delay)s, %(created_by)s)
on conflict (tenant_id, owner, name) where owner is not null and deleted_at is null do nothing
returning id;

-- name: change
update fairlead.job_triggers
set label = %(label)s, is_enabled = %(is_enabled)s, trigger_type = %(trigger_type)s, event_name = %(event_name)s,
    filter = %(filter)s, cron_expr = %(cron_expr)s, timezone = %(timezone)s, every_seconds = %(every_seconds)s,
    start_at = %(start_at)s, end_at = %(end_at)s, jitter_seconds = %(jitter_seconds)s, definition_id = %(definition_id)s, payload_template = %(payload_template)s, job_options = %(job_options)s,
    dedupe_window_seconds = %(dedupe_window_seconds)s, catch_up = %(catch_up)s, overlap = %(overlap)s,
    next_fire_at = %(next_fire_at)s, next_delay = %(next_delay)s, updated_at = clock_timestamp()
where id = %(id)s;

-- name: remove
update fairlead.job_triggers set deleted_at = clock_timestamp(), next_fire_at = null
where id = %(id)s and deleted_at is null;

-- name: fired
-- Stores the last and the next firing of each.
update fairlead.job_triggers g
set next_fire_at = f.next_fire_at, next_delay = f.next_delay, last_fired_at = coalesce(f.fired_at, g.last_fired_at)
from unnest(%(ids)s::uuid[], %(nexts)s::timestamptz[], %(delays)s::interval[], %(fired)s::timestamptz[])
    as f(id, next_fire_at, next_delay, fired_at)
where g.id = f.id;

-- name: set_off
update fairlead.job_triggers set last_fired_at = clock_timestamp()
where id in (select id from fairlead.job_triggers where id = any(%(ids)s) order by id for no key update skip locked);
