-- name: job_unexpected
-- A job exists that no call asked for.
-- work: fairlead.job_records where source = 'manual'
select j.id, 'was created by ' || coalesce(j.created_by, 'an unknown client') || ' with the correlation id '
    || coalesce(j.correlation_id, 'none') || '; no call asked for it'
from fairlead.job_records j
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where j.source = 'manual' and j.workflow_run_id is null and j.parent_id is null
    and not exists (select from pg_temp.planned n where n.id = j.id);

-- name: job_repeated
-- A job that was asked for once exists several times.
-- work: pg_temp.planned
select p.first, 'expected one job for place ' || p.place || ' of the call, found ' || count(*)
from pg_temp.planned p group by p.first, p.place having count(*) > 1;

-- name: job_of_failed_call
-- A job exists whose call was refused or rolled back.
-- work: pg_temp.effects where kind in ('enqueue', 'order') and is_fail
select p.id, 'call ' || p.first || ' failed, and so did each repetition of it, but the job exists'
from pg_temp.planned p join pg_temp.effects e on e.first = p.first where e.is_fail;

-- name: order_unexpected
-- A row exists whose transaction was rolled back, or that no call made.
-- work: pg_temp.orders
select o.id, 'call ' || o.call_id || case when c.id is null then ' is unknown' else ' failed' end || ', but the order exists'
from pg_temp.orders o left join pg_temp.calls c on c.id = o.call_id
where c.id is null or c.outcome = 'fail';

-- name: event_unexpected
-- An event exists that no call made, or whose call failed.
-- work: fairlead.events where name = %(event_type)s
select e.id, 'has the correlation id ' || coalesce(e.correlation_id, 'none') || case
    when f.first is null then ', of no call' else ', of a call that failed' end
from fairlead.events e
join fairlead.tenants t on t.id = e.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
left join pg_temp.effects f on f.first::text = e.correlation_id and f.kind in ('emit', 'order')
where e.name = %(event_type)s and (f.first is null or f.is_fail);

-- name: event_repeated
-- An event that was emitted once exists several times.
-- work: fairlead.events where name = %(event_type)s
select e.correlation_id, 'expected one event of this call, found ' || count(*)
from fairlead.events e
join fairlead.tenants t on t.id = e.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where e.name = %(event_type)s and e.correlation_id is not null and e.replay_of is null
group by e.correlation_id having count(*) > 1;

-- name: run_unexpected
-- A workflow run exists that no call started, or whose call failed.
-- work: fairlead.workflow_runs
select r.id, 'has the key ' || coalesce(r.unique_key, 'none') || case
    when f.first is null then ', of no call' else ', of a call that failed' end
from fairlead.workflow_runs r
join fairlead.tenants t on t.id = r.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
left join pg_temp.effects f on f.first::text = r.unique_key and f.kind = 'run'
where f.first is null or f.is_fail;

-- name: run_repeated
-- A workflow run that was started once exists several times.
-- work: fairlead.workflow_runs where unique_key is not null
select r.unique_key, 'expected one run of this key, found ' || count(*)
from fairlead.workflow_runs r where r.unique_key is not null
group by r.tenant_id, r.unique_key having count(*) > 1;

-- name: run_answer_differs
-- Calls with the same key were answered with different runs.
-- work: (
--     select from pg_temp.calls where kind in ('run', 'emit') and outcome = 'ok' group by first having count(*) > 1) c
select c.first, 'expected one run or event for this call and its repetitions, found ' || count(distinct c.ids[1])
from pg_temp.calls c where c.kind in ('run', 'emit') and c.outcome = 'ok'
group by c.first having count(distinct c.ids[1]) > 1;

-- name: retry_unexpected
-- A job was retried by hand more often than clients asked.
-- work: pg_temp.retries
select r.job_id, 'expected at most ' || count(c.id) || ' retries by hand, found ' || r.times
from pg_temp.retries r
join fairlead.job_records j on j.id = r.job_id
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
left join pg_temp.calls c on c.kind = 'retry' and c.outcome <> 'fail' and (c.what ->> 'job')::uuid = r.job_id
group by r.job_id, r.times having r.times > count(c.id);

-- name: cancel_unexpected
-- A job was canceled, and no client asked for it.
-- work: fairlead.job_records where status = 'canceled' or cancel_requested_at is not null
select j.id, 'is canceled, but no call canceled it'
from fairlead.job_records j
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
left join fairlead.workflow_runs r on r.id = j.workflow_run_id
where (j.status = 'canceled' or j.cancel_requested_at is not null) and coalesce(r.status, '') not in ('failed', 'canceled')
    -- what expires has a rule of its own
    and coalesce(j.error ->> 'type', '') <> 'expired'
    -- younger jobs of a key replace the waiting ones, and may stop those that run
    and not exists (
        select from pg_temp.by_key o join pg_temp.by_key n
            on n.definition = o.definition and n.tenant_id = o.tenant_id and n.value = o.value and n.id <> o.id
        where o.id = j.id and o.strategy in ('replace_queued', 'cancel_running') and n.began < o.ended
            and (o.strategy = 'cancel_running' or j.error ->> 'type' = 'replaced'))
    and not exists (
        select from pg_temp.calls c where c.kind = 'cancel' and c.outcome <> 'fail' and (c.what ->> 'job')::uuid in (j.id, j.parent_id));
