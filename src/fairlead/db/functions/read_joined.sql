-- Reads a job and its newest attempts for the library in the caller's own transaction, so that it also finds the jobs which that
-- has enqueued: one JSON text in and one out. `job` is null if there is no such job. The library masks secrets.
create or replace function fairlead.read_joined(request text) returns text language plpgsql stable security definer
set search_path = pg_catalog, pg_temp as $$
declare
    given_id constant uuid := (read_joined.request::jsonb ->> 'job_id')::uuid;
    given_limit constant integer := (read_joined.request::jsonb ->> 'limit')::integer;
begin
    return jsonb_build_object(
        'job', (
            select to_jsonb(f) from (
                -- include store/jobs.sql: selected
                fairlead.jobs j
                -- include store/jobs.sql: named
                j.id = given_id
            ) f),
        'attempts', (
            select coalesce(jsonb_agg(to_jsonb(f) order by f.attempt_no), '[]') from (
                -- include store/jobs.sql: attempts
                -- include store/jobs.sql: attempts_newest
            ) f))::text;
end
$$;

revoke execute on function fairlead.read_joined from public;
