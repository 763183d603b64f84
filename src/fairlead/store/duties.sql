-- A duty is done by whoever holds its row: one process at a time, the others pass by.

-- name: due
select name from fairlead.duties where due_at <= clock_timestamp() order by due_at;

-- name: take
-- Held until the transaction ends. No row: it is not due, or another process is at it.
select place from fairlead.duties where name = %(name)s and due_at <= clock_timestamp() for update skip locked;

-- name: put
update fairlead.duties set place = %(place)s, due_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    done_at = clock_timestamp(), failures = 0, last_error = null
where name = %(name)s;

-- name: put_off
-- The place stays: the round that failed has changed nothing.
update fairlead.duties set due_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    failures = failures + 1, last_error = %(why)s
where name = %(name)s and due_at <= clock_timestamp();
