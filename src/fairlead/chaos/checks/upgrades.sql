-- name: upgrade_noticed
-- A process refused the database, or a statement failed, because stored functions were replaced.
-- work: pg_temp.faults where kind = 'upgrade' and pid is not null
select t.place, 'was written ' || count(*) || ' times'
from pg_temp.traces t where t.kind = 'upgrade' group by t.place;
