-- Our own sessions in this database, as PostgreSQL sees them: of other roles and programs nothing is touched.

-- name: writing
-- Those whose answer is not taken: their client does not read, and what they have locked stays locked.
select pid, query_start from pg_catalog.pg_stat_activity
where datname = current_database() and usename = current_user and application_name = 'fairlead'
    and state = 'active' and wait_event = 'ClientWrite' and pid <> pg_backend_pid()
order by pid;

-- name: end_writing
-- If it is still at the same statement.
select pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
where pid = %(pid)s and query_start = %(query_start)s and datname = current_database() and usename = current_user
    and state = 'active' and wait_event = 'ClientWrite';
