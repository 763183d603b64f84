-- A job is in at most one group, and only while it is failed or dead-lettered. The statement in which a job fails for good
-- notes it, so that no failure is missed; one process at a time adds them to their groups. What a page reads is bounded: the
-- newest groups by their index, and a page of one group's jobs, found by the index in each of the statuses that are wanted.

-- name: has_waiting
select exists (select from fairlead.failures) or exists (select from fairlead.error_group_changes);

-- name: noted
-- Failures that wait for their groups. The lock keeps the jobs from being retried until they are in their groups; it does
-- not block a finish. A job that is being retried at this moment stays for the next round.
select f.ctid::text as spot, f.job_id, f.tenant_id, j.definition_id, d.version, a.finished_at as failed_at,
    case when j.attempt_count = f.attempt_no and j.status in ('failed', 'dead_letter') then j.status end as status,
    case when j.attempt_count = f.attempt_no then j.last_error else a.error_text end as error,
    case when j.attempt_count = f.attempt_no then j.error end as details,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    case when d.secret_paths <> '{}' or j.secret_paths is not null then j.payload end as payload
from (select ctid, job_id, attempt_no, tenant_id from fairlead.failures limit %(look)s) f
cross join lateral (
    select j.definition_id, j.status, j.attempt_count, j.last_error, j.error, j.secret_paths, j.payload
    from fairlead.job_records j where j.id = f.job_id limit 1 for key share skip locked) j
cross join lateral (
    select a.finished_at, a.error_text from fairlead.job_attempts a
    where a.job_id = f.job_id and a.attempt_no = f.attempt_no limit 1) a
join fairlead.job_definitions d on d.id = j.definition_id
limit %(limit)s

-- name: forget_removed
-- Retention has removed these jobs.
delete from fairlead.failures where ctid = any(array(
    select f.ctid from (select ctid, job_id from fairlead.failures limit %(look)s) f
    where not exists (select from fairlead.job_records j where j.id = f.job_id)));

-- name: forget_noted
delete from fairlead.failures where ctid = any(%(spots)s::tid[]);

-- name: known
-- Which of these groups exist, and how many groups each of their definitions has.
select g.tenant_id, g.definition_id, g.fingerprint,
    (select count(*) from (
        select from fairlead.error_groups o
        where o.tenant_id = g.tenant_id and o.definition_id = g.definition_id limit %(most)s) o) as groups,
    exists (
        select from fairlead.error_groups o
        where o.tenant_id = g.tenant_id and o.definition_id = g.definition_id and o.fingerprint = g.fingerprint) as known
from unnest(%(tenants)s::uuid[], %(definitions)s::uuid[], %(fingerprints)s::bytea[])
    as g(tenant_id, definition_id, fingerprint);

-- name: add
-- Adds failures to their groups, and to the groups' hours. The newest failure of a group is its sample.
with failure as materialized (
    select f.* from jsonb_to_recordset(%(failures)s) as f(
        job_id uuid, tenant_id uuid, definition_id uuid, version integer, failed_at timestamptz,
        status fairlead.job_status, fingerprint text, pattern text, sample text)
), newest as materialized (
    select distinct on (tenant_id, definition_id, fingerprint) *
    from failure order by tenant_id, definition_id, fingerprint, failed_at desc
), counted as materialized (
    select tenant_id, definition_id, fingerprint, min(failed_at) as first_seen, min(version) as version, count(*) as seen
    from failure group by 1, 2, 3
), found as (
    insert into fairlead.error_groups as g (
        tenant_id, definition_id, fingerprint, pattern, sample, first_seen, last_seen, first_version, last_version,
        last_job_id, seen, failed, dead_letter)
    select n.tenant_id, n.definition_id, decode(n.fingerprint, 'hex'), n.pattern, n.sample, c.first_seen, n.failed_at,
        c.version, n.version, n.job_id, c.seen, 0, 0
    from newest n join counted c using (tenant_id, definition_id, fingerprint)
    on conflict (tenant_id, definition_id, fingerprint) do update
    set sample = excluded.sample, first_seen = least(g.first_seen, excluded.first_seen),
        last_seen = greatest(g.last_seen, excluded.last_seen), last_version = greatest(g.last_version, excluded.last_version),
        last_job_id = excluded.last_job_id, seen = g.seen + excluded.seen
    returning g.id, g.tenant_id, g.definition_id, encode(g.fingerprint, 'hex') as fingerprint
), hours as (
    insert into fairlead.error_group_hours as h (group_id, hour, tenant_id, failures)
    select g.id, date_trunc('hour', f.failed_at), g.tenant_id, count(*)
    from failure f join found g using (tenant_id, definition_id, fingerprint)
    group by 1, 2, 3
    on conflict (group_id, hour) do update set failures = h.failures + excluded.failures
), joined as (
    insert into fairlead.error_group_jobs (job_id, group_id, tenant_id, status, failed_at)
    select distinct on (f.job_id) f.job_id, g.id, g.tenant_id, f.status, f.failed_at
    from failure f join found g using (tenant_id, definition_id, fingerprint)
    where f.status is not null order by f.job_id, f.failed_at desc
    on conflict (job_id) do nothing
    returning group_id, tenant_id, status
)
insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter)
select group_id, tenant_id, count(*) filter (where status = 'failed'), count(*) filter (where status = 'dead_letter')
from joined group by group_id, tenant_id;

-- name: fold_changes
-- Adds the changes to the numbers of their groups.
with taken as (
    delete from fairlead.error_group_changes where ctid = any(array(
        select c.ctid from fairlead.error_group_changes c limit %(look)s))
    returning group_id, failed, dead_letter
), sums as (
    select group_id, sum(failed) as failed, sum(dead_letter) as dead_letter, count(*) as changes from taken group by group_id
), folded as (
    update fairlead.error_groups g set failed = g.failed + s.failed, dead_letter = g.dead_letter + s.dead_letter
    from sums s where g.id = s.group_id
)
select coalesce(sum(changes), 0)::int from sums;

-- name: selected
select g.id, g.tenant_id, t.slug as tenant, d.key as definition_key, g.pattern, g.first_seen, g.last_seen, g.first_version,
    g.last_version, g.last_job_id, g.seen, g.failed, g.dead_letter,
    g.muted_at is not null and coalesce(g.muted_until > clock_timestamp(), true)
        and coalesce(g.muted_version = d.version, true) as is_muted,
    g.muted_at, g.muted_by, g.muted_until, g.muted_version is not null as mute_until_change, g.mute_note, g.discarded_at,
    g.discarded_by
from

-- name: counted
-- Groups with the numbers of their jobs.
(select g.id, g.tenant_id, g.definition_id, g.pattern, g.first_seen, g.last_seen, g.first_version, g.last_version,
    g.last_job_id, g.seen, g.failed + coalesce(c.failed, 0)::bigint as failed,
    g.dead_letter + coalesce(c.dead_letter, 0)::bigint as dead_letter, g.muted_at, g.muted_by, g.muted_until,
    g.muted_version, g.mute_note, g.discarded_at, g.discarded_by
 from <groups> g
 left join (
    select c.group_id, sum(c.failed) as failed, sum(c.dead_letter) as dead_letter
    from fairlead.error_group_changes c group by c.group_id) c on c.group_id = g.id) g
join fairlead.tenants t on t.id = g.tenant_id
join fairlead.job_definitions d on d.id = g.definition_id

-- name: newest
-- The groups that failed last: the filters apply to these.
(select g.* from fairlead.error_groups g
 where <scope> and g.last_seen >= coalesce(%(since)s, '-infinity'::timestamptz)
 order by g.last_seen desc limit %(look)s)

-- name: of_tenant
g.tenant_id = %(tenant_id)s

-- name: of_all
-- As the index on the time says.
g.seen > 0

-- name: filtered
where (%(definition_key)s::text is null or d.key = %(definition_key)s)
    and (%(status)s::text is null or case %(status)s when 'failed' then g.failed else g.dead_letter end > 0)
    and (%(new_since)s::timestamptz is null or g.first_seen >= %(new_since)s)
    and (%(q)s::text is null or position(lower(%(q)s) in lower(g.pattern)) > 0)

-- name: where_state
where case %(state)s
    when 'open' then not p.is_muted and p.failed + p.dead_letter > 0 when 'muted' then p.is_muted else true end

-- name: by_last_seen
order by p.last_seen desc, p.id desc limit %(limit)s offset %(offset)s

-- name: by_jobs
order by p.failed + p.dead_letter desc, p.last_seen desc, p.id desc limit %(limit)s offset %(offset)s

-- name: one
where g.id = %(id)s and (%(tenant_id)s::uuid is null or g.tenant_id = %(tenant_id)s)

-- name: group_of_job
select group_id from fairlead.error_group_jobs where job_id = %(job_id)s;

-- name: sample
select sample from fairlead.error_groups where id = %(id)s;

-- name: hours
select group_id, hour, failures from fairlead.error_group_hours
where group_id = any(%(groups)s) and hour >= %(since)s order by group_id, hour;

-- name: jobs
-- A page of a group's jobs, the newest first.
select m.job_id, m.status, m.failed_at, j.attempt_count, j.last_error as error,
    d.secret_paths || coalesce(j.secret_paths, '{}') as secret_paths,
    case when d.secret_paths <> '{}' or j.secret_paths is not null then j.payload end as payload
from (
    select m.* from unnest(%(statuses)s::fairlead.job_status[]) as wanted(status)
    cross join lateral (
        select m.job_id, m.status, m.failed_at from fairlead.error_group_jobs m
        where m.group_id = %(id)s and m.status = wanted.status
            and m.failed_at >= coalesce(%(since)s, '-infinity'::timestamptz)
            and (%(place_at)s::timestamptz is null or (m.failed_at, m.job_id) < (%(place_at)s, %(place_id)s::uuid))
        order by m.failed_at desc, m.job_id desc limit %(limit)s) m
    order by m.failed_at desc, m.job_id desc limit %(limit)s) m
join fairlead.job_records j on j.id = m.job_id
join fairlead.job_definitions d on d.id = j.definition_id
order by m.failed_at desc, m.job_id desc

-- name: job_ids
-- Some of a group's jobs after a place, the oldest first.
select m.failed_at, m.job_id from unnest(%(statuses)s::fairlead.job_status[]) as wanted(status)
cross join lateral (
    select m.failed_at, m.job_id from fairlead.error_group_jobs m
    where m.group_id = %(id)s and m.status = wanted.status
        and m.failed_at >= coalesce(%(since)s, '-infinity'::timestamptz)
        and (%(place_at)s::timestamptz is null or (m.failed_at, m.job_id) > (%(place_at)s, %(place_id)s::uuid))
    order by m.failed_at, m.job_id limit %(limit)s) m
order by m.failed_at, m.job_id limit %(limit)s;

-- name: count_since
-- How many jobs of a group failed since a time, counted up to a bound.
select count(*) from (
    select from fairlead.error_group_jobs m
    where m.group_id = %(id)s and m.status = any(%(statuses)s::fairlead.job_status[])
        and m.failed_at >= coalesce(%(since)s, '-infinity'::timestamptz)
    limit %(most)s) m;

-- name: leave
-- Removes jobs from their group. The jobs themselves do not change.
with gone as (
    delete from fairlead.error_group_jobs where job_id = any(%(ids)s) and group_id = %(id)s
    returning group_id, tenant_id, status
), group_change as (
    insert into fairlead.error_group_changes (group_id, tenant_id, failed, dead_letter)
    select group_id, tenant_id, -count(*) filter (where status = 'failed'), -count(*) filter (where status = 'dead_letter')
    from gone group by group_id, tenant_id
)
select from gone;

-- name: mute
update fairlead.error_groups g
set muted_at = clock_timestamp(), muted_by = %(actor)s, muted_until = %(until)s, mute_note = %(note)s,
    muted_version = case when %(until_change)s then d.version end
from fairlead.job_definitions d
where g.id = %(id)s and d.id = g.definition_id;

-- name: unmute
update fairlead.error_groups
set muted_at = null, muted_by = null, muted_until = null, muted_version = null, mute_note = null
where id = %(id)s;

-- name: discard
update fairlead.error_groups set discarded_at = clock_timestamp(), discarded_by = %(actor)s where id = %(id)s;

-- name: remove_old
-- Groups without jobs that were last seen before the retention time.
with gone as (
    delete from fairlead.error_groups where id = any(array(
        select g.id from fairlead.error_groups g
        where g.last_seen < (select clock_timestamp()) - make_interval(days => %(days)s)
            and not exists (select from fairlead.error_group_jobs m where m.group_id = g.id)
        order by g.last_seen limit %(limit)s))
    returning id
), changes as (
    delete from fairlead.error_group_changes where group_id = any(array(select id from gone))
), hours as (
    delete from fairlead.error_group_hours where group_id = any(array(select id from gone))
)
select count(*)::int from gone;

-- name: remove_hours
delete from fairlead.error_group_hours where ctid = any(array(
    select h.ctid from fairlead.error_group_hours h
    where h.hour < (select clock_timestamp()) - make_interval(days => %(days)s) order by h.hour limit %(limit)s));
