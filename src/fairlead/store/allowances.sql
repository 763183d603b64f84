-- A budget is a burst, and a rate at which it comes back. `until` is when all of it is back: each unit that is taken moves it by
-- one interval, and nothing is given while it is further away than the burst.

-- name: take
-- Gives as much of what is wanted as there is; and if that is nothing, how many seconds it takes until there is one.
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
-- How many seconds it takes until there is one; nothing is taken.
select greatest(0, extract(epoch from until - statement_timestamp()) - (%(burst)s - 1) * %(seconds)s)::float8
from fairlead.allowances where key = %(key)s;

-- name: forget
delete from fairlead.allowances where until < clock_timestamp();
