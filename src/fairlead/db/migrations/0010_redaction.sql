-- Which fields of a definition's payloads are secrets: paths such as /smtp/password, found in its schema when it is put.
alter table fairlead.job_definitions add column secret_paths text[] not null default '{}';

-- Those that are there already have not been read: of their payloads nothing is shown until they are put again.
update fairlead.job_definitions set secret_paths = '{/**}'
where jsonb_path_exists(arg_schema, '$.** ? (@.writeOnly == true || @."x-secret" == true)');

-- The claim tells the paths with the rest of a definition, so that the worker can mask what it writes.
do $$
declare
    told text := pg_get_functiondef(
        'fairlead.claim(text, uuid, integer, double precision, uuid[], uuid, integer, uuid, text[])'::regprocedure);
    telling text := replace(
        told, 'json_build_array(d.key, d.timeout_seconds, d.backoff)',
        'json_build_array(d.key, d.timeout_seconds, d.backoff, d.secret_paths)');
begin
    if telling = told then
        raise exception 'the claim does not tell of definitions as it did';
    end if;
    execute telling;
end
$$;

-- A tenant's list of queued jobs finds those that are not due yet.
create index later_by_tenant on fairlead.later (tenant_id, job_id);

-- The jobs of the session's own tenant with a dedupe key. Their index is on a hash, which row-level security keeps a
-- tenant's own statements from using: it is not marked as leakproof, and only a superuser could mark it.
create function fairlead.jobs_with_key(key text, most integer) returns setof uuid
language sql stable security definer set search_path = '' as $$
    select j.id from fairlead.jobs j
    where j.tenant_id = (select fairlead.tenant_of_session()) and j.dedupe_key is not null
        and hashtextextended(j.dedupe_key, 0) = hashtextextended(jobs_with_key.key, 0)
        and j.dedupe_key = jobs_with_key.key
    order by j.id desc limit jobs_with_key.most
$$;
revoke execute on function fairlead.jobs_with_key(text, integer) from public;
grant execute on function fairlead.jobs_with_key(text, integer) to fairlead_tenant;
