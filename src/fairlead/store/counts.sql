-- Counts are deltas: a level is the sum of all rows, a flow the sum of a minute's rows. Folding replaces many rows by one
-- and changes no sum: a statement inserts the sum of the rows that it deletes, so rows that are appended meanwhile stay,
-- concurrent folds divide the rows between them, and readers see either the rows or their sum.
--
-- A level is in count_levels, plus the rows that are not leveled yet: the same statement adds them there, in one order.
-- Readers read both in one statement, so that each row is in one of them.
--
-- The same statement adds usage to usage_hourly, in one order, so that concurrent folds cannot deadlock. A folded row has
-- no usage any more: nothing is added twice.
--
-- Minutes are kept for 25 hours, for the charts of the last day. Older rows become one row for each tenant and definition,
-- in the minute 1970-01-01 00:00, with the level of that time.

-- name: fold_minutes
-- Folds past minutes into one row for each tenant, definition and minute. Returns the next place, and whether more can be
-- folded now. At the end the place moves back a little: a transaction may commit after its minute.
with still_minutes as materialized (
    select greatest(%(place)s::timestamptz, date_trunc('minute', clock_timestamp()) - interval '25 hours') as since,
        date_trunc('minute', clock_timestamp()) - interval '1 minute' as until
), bounds as materialized (
    -- skip hours without rows
    select b.since, b.until, least(b.until, b.since + interval '10 minutes') as upto
    from (
        select w.until, coalesce((
            select min(c.minute) from (values (false), (true)) as v(leveled) cross join fairlead.tenants t cross join lateral (
                select c.minute from fairlead.counts c
                where c.leveled = v.leveled and c.tenant_id = t.id and c.minute >= w.since and c.minute < w.until
                order by c.leveled, c.tenant_id, c.minute limit 1) c), w.until) as since
        from still_minutes w) b
), slice as (
    select c.spot, c.tenant_id, c.definition_id, c.minute, c.leveled,
        count(*) over (partition by c.tenant_id, c.definition_id, c.minute) as together
    from bounds b cross join fairlead.tenants t cross join lateral (
        select c.ctid as spot, c.tenant_id, c.definition_id, c.minute, c.leveled from fairlead.counts c
        where c.leveled in (false, true) and c.tenant_id = t.id and c.minute >= b.since and c.minute < b.upto
        offset 0) c
), crowded as materialized (
    -- in this order the limit splits at most one group
    select spot from slice where together > 1 or not leveled order by tenant_id, definition_id, minute limit %(limit)s
), gone as (
    delete from fairlead.counts where ctid = any(array(select spot from crowded))
    returning tenant_id, definition_id, minute, queued, running, succeeded, failed, dead_letter, canceled,
        runs, retried, run_ms, queue_ms, cost_cents, lost, leveled
), folded as (
    insert into fairlead.counts (
        tenant_id, definition_id, minute, queued, running, succeeded, failed, dead_letter, canceled, leveled)
    select tenant_id, definition_id, minute, sum(queued), sum(running), sum(succeeded), sum(failed),
        sum(dead_letter), sum(canceled), true
    from gone group by tenant_id, definition_id, minute
), leveled as (
    insert into fairlead.count_levels as l (
        tenant_id, definition_id, queued, running, succeeded, failed, dead_letter, canceled,
        runs, runs_succeeded, runs_failed, runs_dead_letter, runs_retried, runs_lost)
    select tenant_id, definition_id, sum(queued), sum(running), sum(succeeded), sum(failed), sum(dead_letter),
        sum(canceled), coalesce(sum(runs), 0), coalesce(sum(succeeded) filter (where runs is not null), 0),
        coalesce(sum(failed) filter (where runs is not null), 0),
        coalesce(sum(dead_letter) filter (where runs is not null), 0), coalesce(sum(retried), 0), coalesce(sum(lost), 0)
    from gone where not leveled group by tenant_id, definition_id order by tenant_id, definition_id
    on conflict (tenant_id, definition_id) do update
    set queued = l.queued + excluded.queued, running = l.running + excluded.running,
        succeeded = l.succeeded + excluded.succeeded, failed = l.failed + excluded.failed,
        dead_letter = l.dead_letter + excluded.dead_letter, canceled = l.canceled + excluded.canceled,
        runs = l.runs + excluded.runs, runs_succeeded = l.runs_succeeded + excluded.runs_succeeded,
        runs_failed = l.runs_failed + excluded.runs_failed,
        runs_dead_letter = l.runs_dead_letter + excluded.runs_dead_letter,
        runs_retried = l.runs_retried + excluded.runs_retried, runs_lost = l.runs_lost + excluded.runs_lost
), used as (
    insert into fairlead.usage_hourly as u (
        tenant_id, definition_id, hour, runs, succeeded, failed, dead_letter, canceled, retried, run_ms, queue_ms,
        cost_cents)
    select tenant_id, definition_id, date_trunc('hour', minute, 'UTC') as hour, sum(runs), sum(succeeded), sum(failed),
        sum(dead_letter), sum(canceled), sum(retried), sum(run_ms), sum(queue_ms), sum(cost_cents)
    from gone where runs is not null group by tenant_id, hour, definition_id order by tenant_id, hour, definition_id
    on conflict (tenant_id, hour, definition_id) do update
    set runs = u.runs + excluded.runs, succeeded = u.succeeded + excluded.succeeded,
        failed = u.failed + excluded.failed, dead_letter = u.dead_letter + excluded.dead_letter,
        canceled = u.canceled + excluded.canceled, retried = u.retried + excluded.retried,
        run_ms = u.run_ms + excluded.run_ms, queue_ms = u.queue_ms + excluded.queue_ms,
        cost_cents = u.cost_cents + excluded.cost_cents
)
select (select count(*) from gone) as rows,
    case when (select count(*) from crowded) = %(limit)s then b.since
        when b.upto < b.until then b.upto else b.until - interval '5 minutes' end as place,
    (select count(*) from crowded) = %(limit)s or b.upto < b.until as more
from bounds b;

-- name: fold_history
-- Folds rows older than the kept minutes into the one row of their tenant and definition.
with old as materialized (
    select c.spot, c.tenant_id, c.definition_id
    from fairlead.tenants t cross join lateral (
        select c.ctid as spot, c.tenant_id, c.definition_id from fairlead.counts c
        where c.leveled in (false, true) and c.tenant_id = t.id and c.minute > to_timestamp(0)
            and c.minute < date_trunc('minute', clock_timestamp()) - interval '25 hours'
        limit %(limit)s) c
    limit %(limit)s
), level as materialized (
    select c.spot from (select distinct tenant_id, definition_id from old) o cross join lateral (
        select c.ctid as spot from fairlead.counts c
        where c.leveled in (false, true) and c.tenant_id = o.tenant_id and c.minute = to_timestamp(0)
            and c.definition_id = o.definition_id
        offset 0) c
), gone as (
    delete from fairlead.counts where ctid = any(array(select spot from old union all select spot from level))
    returning tenant_id, definition_id, minute, queued, running, succeeded, failed, dead_letter, canceled,
        runs, retried, run_ms, queue_ms, cost_cents, lost, leveled
), folded as (
    insert into fairlead.counts (
        tenant_id, definition_id, minute, queued, running, succeeded, failed, dead_letter, canceled, leveled)
    select tenant_id, definition_id, to_timestamp(0), sum(queued), sum(running), sum(succeeded), sum(failed),
        sum(dead_letter), sum(canceled), true
    from gone group by tenant_id, definition_id
), leveled as (
    insert into fairlead.count_levels as l (
        tenant_id, definition_id, queued, running, succeeded, failed, dead_letter, canceled,
        runs, runs_succeeded, runs_failed, runs_dead_letter, runs_retried, runs_lost)
    select tenant_id, definition_id, sum(queued), sum(running), sum(succeeded), sum(failed), sum(dead_letter),
        sum(canceled), coalesce(sum(runs), 0), coalesce(sum(succeeded) filter (where runs is not null), 0),
        coalesce(sum(failed) filter (where runs is not null), 0),
        coalesce(sum(dead_letter) filter (where runs is not null), 0), coalesce(sum(retried), 0), coalesce(sum(lost), 0)
    from gone where not leveled group by tenant_id, definition_id order by tenant_id, definition_id
    on conflict (tenant_id, definition_id) do update
    set queued = l.queued + excluded.queued, running = l.running + excluded.running,
        succeeded = l.succeeded + excluded.succeeded, failed = l.failed + excluded.failed,
        dead_letter = l.dead_letter + excluded.dead_letter, canceled = l.canceled + excluded.canceled,
        runs = l.runs + excluded.runs, runs_succeeded = l.runs_succeeded + excluded.runs_succeeded,
        runs_failed = l.runs_failed + excluded.runs_failed,
        runs_dead_letter = l.runs_dead_letter + excluded.runs_dead_letter,
        runs_retried = l.runs_retried + excluded.runs_retried, runs_lost = l.runs_lost + excluded.runs_lost
), used as (
    insert into fairlead.usage_hourly as u (
        tenant_id, definition_id, hour, runs, succeeded, failed, dead_letter, canceled, retried, run_ms, queue_ms,
        cost_cents)
    select tenant_id, definition_id, date_trunc('hour', minute, 'UTC') as hour, sum(runs), sum(succeeded), sum(failed),
        sum(dead_letter), sum(canceled), sum(retried), sum(run_ms), sum(queue_ms), sum(cost_cents)
    from gone where runs is not null group by tenant_id, hour, definition_id order by tenant_id, hour, definition_id
    on conflict (tenant_id, hour, definition_id) do update
    set runs = u.runs + excluded.runs, succeeded = u.succeeded + excluded.succeeded,
        failed = u.failed + excluded.failed, dead_letter = u.dead_letter + excluded.dead_letter,
        canceled = u.canceled + excluded.canceled, retried = u.retried + excluded.retried,
        run_ms = u.run_ms + excluded.run_ms, queue_ms = u.queue_ms + excluded.queue_ms,
        cost_cents = u.cost_cents + excluded.cost_cents
)
select (select count(*) from gone) as rows, (select count(*) from old) = %(limit)s as more;
