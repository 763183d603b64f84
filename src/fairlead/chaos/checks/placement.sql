-- name: worker_unfit
-- A job ran on a worker without the labels that it needs.
-- work of chaos.labeled: pg_temp.starts s join pg_temp.definition_plans p on p.key = s.definition
--     where p.requires is not null
select s.job_id, 'attempt ' || s.attempt_no || ' ran on ' || coalesce(w.name, 'an unknown worker') || ', without '
    || p.requires::text || coalesce(', with ' || (w.once ->> 'FAIRLEAD_LABELS'), '')
from pg_temp.starts s join pg_temp.definition_plans p on p.key = s.definition and p.requires is not null
left join lateral (
    select w.name, w.once from pg_temp.process_starts w where w.pid = s.pid and w.at <= s.at order by w.at desc limit 1) w on true
where w.name is distinct from %(labeled_worker)s or w.once ? 'FAIRLEAD_LABELS';

-- name: slots_exceeded
-- The handlers that ran at once in a worker took more slots than it has.
-- work of chaos.wide: pg_temp.starts s join pg_temp.definition_plans p on p.key = s.definition where p.slots > 1
with change as (
    select s.pid, c.at, c.difference
    from pg_temp.starts s join pg_temp.definition_plans p on p.key = s.definition
    join (
        select e.job_id, e.attempt_no, min(e.at) as at from pg_temp.ends e group by e.job_id, e.attempt_no
    ) e on e.job_id = s.job_id and e.attempt_no = s.attempt_no
    cross join lateral (values (s.at, p.slots), (e.at, -p.slots)) as c(at, difference)
    where p.runner = 'python'
), level as (
    select c.*, sum(c.difference) over (partition by c.pid order by c.at, c.difference rows unbounded preceding) as taken
    from change c
)
select 'pid ' || l.pid, 'at ' || to_timestamp(max(l.at) + %(offset)s) || ' its handlers took ' || max(l.taken)
    || ' slots; it has ' || %(worker_slots)s
from level l where l.difference > 0 and l.taken > %(worker_slots)s group by l.pid;
