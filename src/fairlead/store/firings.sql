-- One record for each trigger and slot, written in the transaction that creates its job.

-- name: add
insert into fairlead.trigger_firings (
    id, trigger_id, tenant_id, slot, scheduled_at, event_id, outcome, job_id, reason, detail, covers, covers_until)
select o.id, o.trigger_id, o.tenant_id, o.slot, o.scheduled_at, o.event_id, o.outcome, o.job_id, o.reason, o.detail,
    o.covers, o.covers_until
from jsonb_to_recordset(%(firings)s) as o(
    id uuid, trigger_id uuid, tenant_id uuid, slot text, scheduled_at timestamptz, event_id uuid, outcome text,
    job_id uuid, reason text, detail text, covers integer, covers_until timestamptz);

-- name: recorded
select f.trigger_id, f.slot
from unnest(%(triggers)s::uuid[], %(slots)s::text[]) as o(trigger_id, slot)
join fairlead.trigger_firings f on f.trigger_id = o.trigger_id and f.slot = o.slot;

-- name: outcomes
select f.slot, f.outcome, f.job_id
from unnest(%(slots)s::text[]) as o(slot)
join fairlead.trigger_firings f on f.trigger_id = %(trigger_id)s and f.slot = o.slot;

-- name: job_statuses
select j.status, count(*)::int from fairlead.jobs j where j.id = any(%(ids)s) group by j.status;

-- name: selected
select f.id, f.trigger_id, f.slot, f.scheduled_at, f.event_id, f.outcome, f.job_id, f.reason, f.detail, f.covers,
    f.covers_until, f.fired_at
from fairlead.trigger_firings f
where

-- name: page
f.trigger_id = %(trigger_id)s and (%(outcome)s::text is null or f.outcome = %(outcome)s)
and f.id < coalesce(%(before)s::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
order by f.trigger_id, f.id desc limit %(limit)s

-- name: at_slot
f.trigger_id = %(trigger_id)s and f.slot = %(slot)s

-- name: of_event
f.event_id = %(event_id)s and (%(tenant_id)s::uuid is null or f.tenant_id = %(tenant_id)s)
and (%(after)s::uuid is null or f.id > %(after)s)
order by f.id limit %(limit)s

-- name: of_job
f.event_id = %(event_id)s and f.job_id = %(job_id)s and (%(tenant_id)s::uuid is null or f.tenant_id = %(tenant_id)s)
limit 1

-- name: recent
f.id in (
    select l.id from unnest(%(trigger_ids)s::uuid[]) as o(id)
    cross join lateral (
        select n.id from fairlead.trigger_firings n
        where n.trigger_id = o.id order by n.trigger_id, n.id desc limit %(each)s) l)
order by f.id desc

-- name: binned
-- The latest firings of each of these triggers, counted by bin, outcome and reason. Their ids are in the order of time.
select f.trigger_id, f.outcome, f.reason, min(greatest(f.at, %(since)s)) as first, max(f.until) as last,
    sum(f.covers)::int as count
from unnest(%(trigger_ids)s::uuid[]) as o(id)
cross join lateral (
    select n.trigger_id, n.outcome, n.reason, coalesce(n.covers, 1) as covers,
        coalesce(n.scheduled_at, n.fired_at) as at, coalesce(n.covers_until, n.scheduled_at, n.fired_at) as until
    from fairlead.trigger_firings n
    where n.trigger_id = o.id and n.id >= %(first_id)s order by n.trigger_id, n.id desc limit %(each)s) f
where f.until >= %(since)s
group by f.trigger_id, f.outcome, f.reason, date_bin(%(bin)s, greatest(f.at, %(since)s), %(since)s)
order by f.trigger_id, first;

-- name: tally
select f.event_id, f.outcome, count(*)
from fairlead.trigger_firings f where f.event_id = any(%(event_ids)s)
group by f.event_id, f.outcome;

-- name: holders
-- Without a lock: under load, many transactions ask for the same few windows.
select w.tenant_id, w.hash, w.job_id
from unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]) as o(tenant_id, hash)
join fairlead.dedupe_windows w on w.tenant_id = o.tenant_id and w.hash = o.hash
where w.expires_at > clock_timestamp();

-- name: windows
-- Takes a window that is free or has ended; waits for uncommitted holders. In the order of the keys, so that two
-- transactions cannot deadlock. Another transaction took the windows that are not returned.
insert into fairlead.dedupe_windows as w (tenant_id, hash, job_id, expires_at)
select o.tenant_id, o.hash, o.job_id, clock_timestamp() + make_interval(secs => o.seconds)
from unnest(%(tenants)s::uuid[], %(hashes)s::bytea[], %(jobs)s::uuid[], %(seconds)s::int[])
    as o(tenant_id, hash, job_id, seconds)
order by o.tenant_id, o.hash
on conflict (tenant_id, hash) do update set job_id = excluded.job_id, expires_at = excluded.expires_at
where w.expires_at <= clock_timestamp()
returning w.tenant_id, w.hash, w.job_id;

-- name: leave_window
delete from fairlead.dedupe_windows where tenant_id = %(tenant_id)s and hash = %(hash)s and job_id = %(job_id)s;

-- name: forget
delete from fairlead.trigger_firings where id in (
    select id from fairlead.trigger_firings
    where fired_at < (select clock_timestamp() - make_interval(days => %(days)s))
    order by fired_at limit %(limit)s for update skip locked);

-- name: forget_windows
delete from fairlead.dedupe_windows where (tenant_id, hash) in (
    select tenant_id, hash from fairlead.dedupe_windows
    where expires_at < (select clock_timestamp() - interval '1 hour')
    order by expires_at limit %(limit)s for update skip locked);
