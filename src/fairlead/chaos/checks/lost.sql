-- name: job_lost
-- An acknowledged job is not in the tables.
-- work: pg_temp.asked where outcome = 'ok'
select a.call_id, 'expected job ' || coalesce(a.answered_job, a.id)::text || ' (place ' || a.place || ' of the call), found none'
from pg_temp.asked a
where a.outcome = 'ok' and (a.answered_job is not null or not a.may_merge)
    and coalesce(a.answered_job, a.id) is not null
    and not exists (
        select from fairlead.job_records j where j.id = coalesce(a.answered_job, a.id) and j.tenant_id = a.tenant_id);

-- name: answer_incomplete
-- An acknowledged call of several jobs was answered with fewer jobs.
-- work: pg_temp.calls where kind = 'enqueue' and outcome = 'ok' and jsonb_array_length(what -> 'jobs') > 1
select c.id, 'expected ' || jsonb_array_length(c.what -> 'jobs') || ' ids in the answer, found ' || cardinality(c.ids)
from pg_temp.calls c
where c.kind = 'enqueue' and c.outcome = 'ok' and cardinality(c.ids) <> jsonb_array_length(c.what -> 'jobs');

-- name: job_differs
-- An acknowledged job has another definition or payload than the call gave it.
-- work: pg_temp.asked where outcome = 'ok' and not is_duplicate and debounce is null and not plan ? 'edit'
select j.id, 'expected ' || a.definition || ' with ' || left(a.plan::text, 200) || ', found ' || d.key || ' with '
    || left((j.payload - 'call' - 'n')::text, 200)
from pg_temp.asked a
join fairlead.job_records j on j.id = a.answered_job
join fairlead.job_definitions d on d.id = j.definition_id
where a.outcome = 'ok' and not a.is_duplicate
    -- a debounced job gets the payload of a later call
    and a.debounce is null
    -- an edited job has another one: see edit_lost; and for the token: see secret_wrong
    and not a.plan ? 'edit'
    and (d.key <> a.definition or j.payload - 'call' - 'n' - 'token' <> a.plan - 'token' or j.payload ->> 'n' <> a.place::text
        or j.correlation_id is distinct from a.first::text);

-- name: job_not_ended
-- A job has not ended after the drain.
-- work: pg_temp.planned
select j.id, 'expected the job to have ended, found it ' || j.status || ' after ' || j.attempt_count || ' attempts, due at '
    || j.scheduled_for || coalesce(': ' || left(j.last_error, 200), '')
from fairlead.jobs j
join fairlead.tenants t on t.id = j.tenant_id join pg_temp.tenant_plans p on p.slug = t.slug
where j.status <= 'running' and not (j.source = 'schedule' and j.queued_at > coalesce(%(drained)s::timestamptz, 'infinity'))
    -- what such a function waits for may never have come: see wait_in_vain
    and not exists (
        select from fairlead.later l join fairlead.job_steps s on s.job_id = l.job_id
        where l.job_id = j.id and l.waits and s.status = 'waiting' and s.kind in ('event', 'signal') and s.due_at is null);

-- name: bulk_torn
-- Some jobs of a call exist and others do not.
-- work: (select from pg_temp.asked where not may_merge group by first having count(distinct place) > 1) c
select a.first, 'expected all or none of ' || count(*) || ' jobs, found ' || count(p.id)
from (
    select distinct a.first, a.place from pg_temp.asked a where not a.may_merge) a
left join pg_temp.planned p on p.first = a.first and p.place = a.place
group by a.first having count(distinct p.place) not in (0, count(distinct a.place));

-- name: bulk_torn_by_key
-- A job that may be a duplicate exists, and the other jobs of the same call do not.
-- work: (select from pg_temp.asked group by first having bool_or(may_merge) and not bool_and(may_merge)) c
select p.first, 'job ' || min(p.id::text) || ' exists, and none of the jobs of this call that cannot be duplicates'
from pg_temp.planned p
where exists (select from pg_temp.asked a where a.first = p.first and not a.may_merge)
    and not exists (
        select from pg_temp.asked a join pg_temp.planned o on o.first = a.first and o.place = a.place
        where a.first = p.first and not a.may_merge)
group by p.first;

-- name: order_lost
-- The row of a committed transaction is missing.
-- work: pg_temp.calls where kind = 'order' and outcome = 'ok'
select c.id, 'the commit was acknowledged, but the order ' || (c.what ->> 'order') || ' does not exist'
from pg_temp.calls c
where c.kind = 'order' and c.outcome = 'ok' and not exists (
    select from pg_temp.orders o where o.id = (c.what ->> 'order')::uuid);

-- name: order_torn
-- The jobs of a transaction exist without its row, or its row without the jobs.
-- work: pg_temp.calls where kind = 'order'
select c.id, case when o.id is null then 'the order was rolled back' else 'the order exists' end || ', and '
    || count(p.id) || ' of its ' || count(*) || ' jobs exist'
from pg_temp.calls c
join pg_temp.asked a on a.call_id = c.id and not a.may_merge
left join pg_temp.planned p on p.first = c.id and p.place = a.place
left join pg_temp.orders o on o.id = (c.what ->> 'order')::uuid
where c.kind = 'order'
group by c.id, o.id having count(distinct p.place) <> case when o.id is null then 0 else count(distinct a.place) end;

-- name: order_event_torn
-- The event of a transaction exists without its row, or its row without the event.
-- work: pg_temp.calls where kind = 'order' and (what ->> 'event')::boolean
select c.id, case when o.id is null then 'the order was rolled back' else 'the order exists' end || ', and '
    || count(e.id) || ' events of it exist'
from pg_temp.calls c
left join pg_temp.orders o on o.id = (c.what ->> 'order')::uuid
left join fairlead.events e on e.correlation_id = c.id::text and e.tenant_id = c.tenant_id
where c.kind = 'order' and (c.what ->> 'event')::boolean
group by c.id, o.id having count(e.id) <> case when o.id is null then 0 else 1 end;

-- name: event_lost
-- An acknowledged event is not in the tables.
-- work: pg_temp.calls where kind = 'emit' and outcome = 'ok'
select c.id, 'expected event ' || coalesce(c.ids[1]::text, 'with an id') || ', found none'
from pg_temp.calls c
where c.kind = 'emit' and c.outcome = 'ok' and not exists (
    select from fairlead.events e
    where e.id = c.ids[1] and e.tenant_id = c.tenant_id and e.name = c.what ->> 'name');

-- name: run_lost
-- An acknowledged workflow run is not in the tables.
-- work: pg_temp.calls where kind = 'run' and outcome = 'ok'
select c.id, 'expected run ' || coalesce(c.ids[1]::text, 'with an id') || ', found none'
from pg_temp.calls c
where c.kind = 'run' and c.outcome = 'ok' and not exists (
    select from fairlead.workflow_runs r where r.id = c.ids[1] and r.tenant_id = c.tenant_id);

-- name: cancel_lost
-- An acknowledged cancel had no effect.
-- work: pg_temp.calls where kind = 'cancel' and outcome = 'ok'
select c.id, 'the cancel was acknowledged as ' || coalesce(c.answer ->> 'status', 'done') || ', but job ' || j.id || ' is '
    || j.status
from pg_temp.calls c join fairlead.job_records j on j.id = (c.what ->> 'job')::uuid
left join pg_temp.retries r on r.job_id = j.id
where c.kind = 'cancel' and c.outcome = 'ok' and case
    when r.times is not null then not exists (
        select from pg_temp.entries e where e.job_id = j.id and e.meaning in ('asked', 'canceled'))
    when c.answer ->> 'status' = 'canceled' then j.status <> 'canceled'
    else j.status not in ('canceled', 'succeeded') end;

-- name: started_after_cancel
-- An attempt was claimed after a cancel of its job had been acknowledged.
-- work: pg_temp.calls where kind = 'cancel' and outcome = 'ok'
select t.job_id, 'attempt ' || t.attempt_no || ' was claimed at ' || t.started_at || ', after the cancel was acknowledged at '
    || min(c.answered)
from pg_temp.calls c join pg_temp.tries t on t.job_id = (c.what ->> 'job')::uuid
where c.kind = 'cancel' and c.outcome = 'ok' and t.started_at > c.answered + make_interval(secs => %(tolerance)s)
    and not exists (select from pg_temp.retries r where r.job_id = t.job_id)
group by t.job_id, t.attempt_no, t.started_at;

-- name: retry_lost
-- An acknowledged retry is not in the audit log.
-- work: pg_temp.calls where kind = 'retry' and outcome = 'ok'
select c.what ->> 'job', 'expected ' || count(*) || ' retries by hand, found ' || coalesce(r.times, 0)
from pg_temp.calls c left join pg_temp.retries r on r.job_id = (c.what ->> 'job')::uuid
where c.kind = 'retry' and c.outcome = 'ok'
group by c.what ->> 'job', r.times having count(*) > coalesce(r.times, 0);
