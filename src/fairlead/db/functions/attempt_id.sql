-- The id of an attempt. It is derived, so that no row has to hold it: of a job's first attempt it is the job's id with
-- another version, of a later one a hash, which is as unique as a random id.
create or replace function fairlead.attempt_id(job_id uuid, attempt_no integer) returns uuid language sql immutable as $$
    select case when attempt_no = 1 then overlay(job_id::text placing '8' from 15 for 1)::uuid
        else md5(job_id::text || attempt_no)::uuid end
$$;

revoke execute on function fairlead.attempt_id from public;
grant execute on function fairlead.attempt_id to fairlead_tenant;
