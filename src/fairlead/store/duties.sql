-- The process that locks a duty's row does the duty; the others skip it.

-- name: due
select name from fairlead.duties where due_at <= clock_timestamp() order by due_at;

-- name: take
-- Locked until the transaction ends. No row: it is not due, or another process holds it.
select place from fairlead.duties where name = %(name)s and due_at <= clock_timestamp() for update skip locked;

-- name: put
update fairlead.duties set place = %(place)s, due_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    done_at = clock_timestamp(), failures = 0, last_error = null
where name = %(name)s;

-- name: hurry
update fairlead.duties set due_at = clock_timestamp() + make_interval(secs => %(seconds)s)
where name = %(name)s and due_at > clock_timestamp() + make_interval(secs => %(seconds)s);

-- name: put_off
-- The place stays: the failed round has changed nothing.
update fairlead.duties set due_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    failures = failures + 1, last_error = %(why)s
where name = %(name)s and due_at <= clock_timestamp();
