-- Counts are deltas: a level is the sum of all rows, a flow that of a minute's. Folding puts one row in the place of
-- many and changes no sum: what a statement deletes is what it adds up, so rows that are appended meanwhile stay, two
-- that fold at once share the rows between them, and no reader ever sees a half.
--
-- A level is in count_levels, but for the rows that are not leveled yet: folding adds them there, in the same statement
-- and in one order too. Both are read by one statement, so that each row is in one of them.
--
-- What runs used goes on to usage_hourly in the same statement, and is added there in one order, so that two that fold at
-- once wait for each other and never in a circle. A folded row has no runs any more: nothing is added twice.
--
-- Minutes are kept for 25 hours, for the charts of the last day. Flows from before that are nobody's question: they
-- become one row for each tenant and definition, in the minute 1970-01-01 00:00, with the level of that time.

-- name: fold_minutes
-- One row for each tenant, definition and minute, of minutes that are over. Gives the next place, and whether there is
-- more to do at once. When all is done the place goes back a little: a transaction may commit after its minute.
with still_minutes as materialized (
    select greatest(%(place)s::timestamptz, date_trunc('minute', clock_timestamp()) - interval '25 hours') as since,
        date_trunc('minute', clock_timestamp()) - interval '1 minute' as until
), bounds as materialized (
    -- hours in which nothing happened are not walked through
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
    -- in this order at most one group is cut in two
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
-- What is older than the minutes that are kept goes into its tenant's and definition's one row.
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
