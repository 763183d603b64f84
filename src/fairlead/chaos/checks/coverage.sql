-- name: call_never_acknowledged
-- Of a kind of call that was made often, none was acknowledged.
-- work: pg_temp.calls where kind in ('enqueue', 'order', 'emit', 'run')
select c.kind, 'expected some of ' || count(*) || ' calls to be acknowledged, found none; codes: '
    || string_agg(distinct c.code, ', ')
from pg_temp.calls c where c.kind in ('enqueue', 'order', 'emit', 'run')
group by c.kind having count(*) >= 20 and not bool_or(c.outcome = 'ok');

-- name: history_empty
-- The history has no call or no start of a handler.
-- work: (values ('calls'), ('starts')) n
select n.name, 'expected records in the history, found none'
from (values
    ('calls', exists (select from pg_temp.calls)), ('starts', exists (select from pg_temp.starts))) as n(name, is_there)
where not n.is_there;

-- name: samples_missing
-- Leases were hardly ever counted while the run lasted.
-- work: (values ('samples')) n
select 'samples', 'expected counts of the leases during the run, found ' || count(distinct s.at)
from pg_temp.samples s having count(distinct s.at) = 0;
