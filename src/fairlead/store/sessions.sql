-- Fairlead's own sessions in this database; other roles and programs are not touched.

-- name: writing
-- Sessions whose client does not read their result: their locks stay.
select pid, query_start from pg_catalog.pg_stat_activity
where datname = current_database() and usename = current_user and application_name = 'fairlead'
    and state = 'active' and wait_event = 'ClientWrite' and pid <> pg_backend_pid()
order by pid;

-- name: end_writing
-- Only if it still runs the same statement.
select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
where pid = %(pid)s and query_start = %(query_start)s and datname = current_database() and usename = current_user
    and state = 'active' and wait_event = 'ClientWrite';
