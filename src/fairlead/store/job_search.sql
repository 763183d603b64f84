-- A search reads jobs newest first, a piece at a time, through the index that has the fewest of them; the other conditions
-- filter each piece. So a page costs the same however many jobs do not match, and says how far it came.

-- name: limit_statements
-- The earlier limit of a statement's time, and the new one.
select before.value, set_config('statement_timeout', %(limit)s, true)
from (select current_setting('statement_timeout') as value) before

-- name: found
-- The jobs of the newest `look` that an index finds which match the other conditions, too.
select j.id from (
    select j.* from fairlead.job_records j where

-- name: found_end
    order by j.id desc limit %(look)s) j

-- name: with_definition
join fairlead.job_definitions d on d.id = j.definition_id

-- name: found_limit
order by j.id desc limit %(limit)s offset %(offset)s

-- name: found_by_index
-- Where the index has all the conditions.
select j.id from fairlead.job_records j where

-- name: last_looked_at
-- The last job of a piece, if the piece did not reach the end.
select j.id from fairlead.job_records j where

-- name: last_looked_at_end
order by j.id desc limit 1 offset %(look)s - 1

-- name: shown
j.id = any(%(ids)s)

-- name: waiting
-- The number of waiting jobs, counted up to a bound.
select count(*) from (
    select w.job_id from

-- name: waiting_end
    limit %(most_waiting)s + 1) w

-- name: waiting_jobs
-- A tenant's waiting jobs: for any worker, for a host, for their time; and its running ones, if they are wanted, too.
((select r.job_id from fairlead.ready r where r.host_id is null and r.tenant_id = %(tenant_id)s
    and (%(definition_id)s::uuid is null or r.definition_id = %(definition_id)s)
 limit %(most_waiting)s + 1)
union all
(select r.job_id from fairlead.hosts h cross join lateral (
    select r.job_id from fairlead.ready r where r.host_id = h.id
        and (%(definition_id)s::uuid is null or r.definition_id = %(definition_id)s)
    limit %(most_waiting)s + 1) r
 where h.tenant_id = %(tenant_id)s limit %(most_waiting)s + 1)
union all
(select l.job_id from fairlead.later l where l.tenant_id = %(tenant_id)s
    and (%(definition_id)s::uuid is null or l.definition_id = %(definition_id)s)
 limit %(most_waiting)s + 1)
union all
(select l.job_id from fairlead.leases l where %(and_running)s::boolean and l.tenant_id = %(tenant_id)s
    and (%(definition_id)s::uuid is null or l.definition_id = %(definition_id)s)
 limit %(most_waiting)s + 1)) w

-- name: where_waiting
-- The newest of the waiting jobs.
j.id = any(array(select w.job_id from

-- name: where_waiting_end
where w.job_id < %(before)s
order by w.job_id desc limit %(look)s))

-- name: rarest_tag
-- The tag with the fewest jobs, and their number, counted up to a bound.
select t.tag, n.number from unnest(%(tags)s::text[]) as t(tag)
cross join lateral (
    select count(*) as number from (
        select from fairlead.job_tags o where o.tenant_id = %(tenant_id)s and o.tag = t.tag
        limit %(most_waiting)s + 1) o) n
order by n.number, t.tag limit 1

-- name: where_tagged
-- The newest of the jobs with a tag.
j.id = any(array(
    select t.job_id from fairlead.job_tags t
    where t.tenant_id = %(tenant_id)s and t.tag = %(rarest_tag)s
        and t.job_id >= %(first)s and t.job_id < %(before)s
    order by t.job_id desc limit %(look)s))

-- name: where_due_later
-- The newest of the jobs that wait for their time.
j.id = any(array(
    select l.job_id from fairlead.later l
    where l.tenant_id = %(tenant_id)s
        and l.job_id < %(before)s
    order by l.job_id desc limit %(look)s))

-- name: definition
select id from fairlead.job_definitions where key = %(definition_key)s;

-- name: total
-- The number of jobs, from the counts.
select coalesce(sum(s.number), 0)::bigint
from (
    select queued, running, succeeded, failed, dead_letter, canceled from fairlead.count_levels
    where (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        and (%(definition_id)s::uuid is null or definition_id = %(definition_id)s)
    union all
    select queued, running, succeeded, failed, dead_letter, canceled from fairlead.counts
    where not leveled and (%(tenant_id)s::uuid is null or tenant_id = %(tenant_id)s)
        and (%(definition_id)s::uuid is null or definition_id = %(definition_id)s)) c
cross join lateral (values ('queued', c.queued), ('running', c.running), ('succeeded', c.succeeded), ('failed', c.failed),
    ('dead_letter', c.dead_letter), ('canceled', c.canceled)) as s(status, number)
where %(statuses)s::text[] is null or s.status = any(%(statuses)s);
