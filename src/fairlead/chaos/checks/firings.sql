-- name: instant_missed
-- An instant of a schedule has no firing record. Instants that catch-up left out share one record.
-- work: fairlead.trigger_firings f join fairlead.job_triggers g on g.id = f.trigger_id where g.label = any(%(schedules)s)
with clock as (
    select g.id, t.slug, g.start_at, g.every_seconds,
        least(g.next_fire_at - g.next_delay, coalesce(%(drained)s::timestamptz, 'infinity')) as until
    from fairlead.job_triggers g join fairlead.tenants t on t.id = g.tenant_id
    join pg_temp.tenant_plans p on p.slug = t.slug
    where g.label = any(%(schedules)s) and g.trigger_type = 'schedule' and g.every_seconds > 0
), last as (
    -- a schedule that was disabled has no next instant: its last firing is the last of them
    select c.*, coalesce(c.until, (
        select max(coalesce(f.covers_until, f.scheduled_at)) from fairlead.trigger_firings f where f.trigger_id = c.id)) as ends
    from clock c
), instant as (
    select l.id, l.slug, at from last l,
        generate_series(l.start_at, l.ends, make_interval(secs => l.every_seconds)) as at
    where at < l.ends
)
select i.slug || ' ' || i.at, 'expected one firing of the schedule for this instant, found none'
from instant i
where not exists (
    select from fairlead.trigger_firings f
    where f.trigger_id = i.id and i.at between f.scheduled_at and coalesce(f.covers_until, f.scheduled_at));

-- name: schedule_missing
-- A tenant's schedule or trigger is not in the tables.
-- work: pg_temp.tenant_plans
select p.slug, 'expected one trigger labeled ' || wanted.label || ', found ' || count(g.id)
from pg_temp.tenant_plans p
cross join unnest(%(schedules)s::text[] || %(event_trigger)s::text) as wanted(label)
join fairlead.tenants t on t.slug = p.slug
left join fairlead.job_triggers g on g.tenant_id = t.id and g.label = wanted.label
group by p.slug, wanted.label having count(g.id) <> 1;

-- name: instant_doubled
-- An instant of a schedule has several firing records.
-- work: fairlead.trigger_firings where scheduled_at is not null and event_id is null
select f.trigger_id || ' ' || f.scheduled_at, 'expected one firing for this instant, found ' || count(*)
from fairlead.trigger_firings f where f.scheduled_at is not null and f.event_id is null and f.slot not like 'manual:%%'
    and f.slot not like 'backfill:%%'
group by f.trigger_id, f.scheduled_at having count(*) > 1;

-- name: instant_run_twice
-- An instant of a schedule has several jobs, for example from a backfill and from the scheduler.
-- work: pg_temp.calls where kind = 'backfill' and (answer ->> 'enqueued')::integer > 0
select f.trigger_id || ' ' || f.scheduled_at, 'expected one job for this instant, found ' || count(*) || ', of '
    || string_agg(f.slot, ', ' order by f.fired_at)
from fairlead.trigger_firings f
where f.outcome = 'enqueued' and f.event_id is null and f.scheduled_at is not null and f.slot not like 'manual:%%'
group by f.trigger_id, f.scheduled_at having count(*) > 1;

-- name: fired_early
-- A schedule fired before its time.
-- work: fairlead.trigger_firings where scheduled_at is not null and event_id is null
select f.trigger_id || ' ' || f.scheduled_at, 'fired at ' || f.fired_at
from fairlead.trigger_firings f
where f.event_id is null and f.fired_at < f.scheduled_at - make_interval(secs => %(tolerance)s);

-- name: firing_without_job
-- A firing names a job that does not exist.
-- work: fairlead.trigger_firings where outcome in ('enqueued', 'deduplicated')
select f.trigger_id || ' ' || f.slot, 'the firing is ' || f.outcome || ' with job ' || f.job_id || ', which does not exist'
from fairlead.trigger_firings f
where f.outcome in ('enqueued', 'deduplicated')
    and not exists (select from fairlead.job_records j where j.id = f.job_id);

-- name: firing_shares_job
-- Two firings claim to have made the same job.
-- work: fairlead.trigger_firings where outcome = 'enqueued'
select f.job_id, 'expected one firing that made this job, found ' || count(*)
from fairlead.trigger_firings f where f.outcome = 'enqueued' group by f.job_id having count(*) > 1;

-- name: job_without_firing
-- A trigger's job has no firing record that made it.
-- work: fairlead.job_records where source in ('event', 'schedule') and created_by like 'trigger:%%'
select j.id, 'was created by ' || j.created_by || ', but no firing record names it'
from fairlead.job_records j
where j.source in ('event', 'schedule') and j.created_by like 'trigger:%%' and not exists (
    select from fairlead.trigger_firings f where f.job_id = j.id and f.outcome = 'enqueued');

-- name: event_not_dispatched
-- An event still waits to be dispatched.
-- work: fairlead.events
select e.id, 'expected the event to be dispatched, but it waits since ' || e.recorded_at
from fairlead.events e
join fairlead.tenants t on t.id = e.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where e.dispatched_at is null or exists (select from fairlead.events_waiting w where w.event_id = e.id);

-- name: event_firing_missed
-- An event has no firing record of a trigger that matches it.
-- work: fairlead.events e join fairlead.job_triggers g on g.tenant_id = e.tenant_id and g.event_name = e.name
--     where g.label = %(event_trigger)s
select e.id, 'expected one firing of the trigger ' || g.label || ', found none'
from fairlead.events e
join fairlead.job_triggers g on g.tenant_id = e.tenant_id and g.event_name = e.name
where g.label = %(event_trigger)s and g.is_enabled and g.deleted_at is null and g.filter = '{}'
    and e.recorded_at > g.created_at and e.replay_of is null and not g.id = any(e.lineage)
    and not exists (select from fairlead.trigger_firings f where f.trigger_id = g.id and f.event_id = e.id);

-- name: event_firing_doubled
-- An event has several firing records of the same trigger.
-- work: fairlead.trigger_firings where event_id is not null
select f.event_id, 'expected one firing of trigger ' || f.trigger_id || ', found ' || count(*)
from fairlead.trigger_firings f where f.event_id is not null
group by f.event_id, f.trigger_id having count(*) > 1;
