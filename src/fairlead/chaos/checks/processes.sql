-- name: process_crashed
-- A process that worked has ended, and neither a fault nor a job that kills its worker had hit it. One that ends while it
-- starts, since it cannot reach the database, is started again: the run waits for it, and fails if it never works.
-- work: pg_temp.process_starts p where exists (
--     select from pg_temp.process_starts o where o.name = p.name and o.at < p.at)
select former.name, 'process ' || former.pid || ' (' || former.role || ') was replaced after ' || round((p.at - former.at)::numeric, 1)
    || ' s, but no fault had hit it'
from pg_temp.process_starts p
cross join lateral (
    select o.* from pg_temp.process_starts o where o.name = p.name and o.at < p.at order by o.at desc limit 1) former
where p.former_was_ready
    and not exists (select from pg_temp.faults f where f.pid = former.pid and f.at < p.at)
    and not exists (
        select from pg_temp.starts s where s.pid = former.pid and s.definition = %(poison)s and s.at between former.at and p.at);
