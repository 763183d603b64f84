-- A budget is a burst and a refill rate. `until` is when it is full again: each unit moves it by one interval, and no unit
-- is granted while `until` is further away than the burst.

-- name: take
-- Grants up to `wanted` units; if none is left, returns the seconds until the next one.
insert into fairlead.allowances as a (key, until, granted)
values (%(key)s, statement_timestamp() + make_interval(secs => least(%(wanted)s::int, %(burst)s::int) * %(seconds)s::float8),
    least(%(wanted)s::int, %(burst)s::int))
on conflict (key) do update set
    granted = greatest(0, least(%(wanted)s::int, floor(%(burst)s
        - extract(epoch from greatest(a.until - statement_timestamp(), '0')) / %(seconds)s + 1e-6)::int)),
    until = greatest(a.until, statement_timestamp()) + make_interval(secs => %(seconds)s::float8
        * greatest(0, least(%(wanted)s::int, floor(%(burst)s
            - extract(epoch from greatest(a.until - statement_timestamp(), '0')) / %(seconds)s + 1e-6)::int)))
returning granted, case when granted > 0 then 0
    else extract(epoch from until - statement_timestamp()) - (%(burst)s - 1) * %(seconds)s end::float8 as wait;

-- name: wait
-- The seconds until the next unit; takes none.
select greatest(0, extract(epoch from until - statement_timestamp()) - (%(burst)s - 1) * %(seconds)s)::float8
from fairlead.allowances where key = %(key)s;

-- name: forget
delete from fairlead.allowances where until < clock_timestamp();
