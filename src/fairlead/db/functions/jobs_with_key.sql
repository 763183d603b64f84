-- The jobs of the session's tenant with a dedupe key. Their index is on a hash, which is not leakproof (only a superuser
-- could mark it), so PostgreSQL does not use it in a tenant's statements under row-level security.
create or replace function fairlead.jobs_with_key(key text, most integer) returns setof uuid language sql stable security definer
set search_path = '' as $$
    select j.id from fairlead.jobs j
    where j.tenant_id = (select fairlead.tenant_of_session()) and j.dedupe_key is not null
        and hashtextextended(j.dedupe_key, 0) = hashtextextended(jobs_with_key.key, 0)
        and j.dedupe_key = jobs_with_key.key
    order by j.id desc limit jobs_with_key.most
$$;

revoke execute on function fairlead.jobs_with_key from public;
grant execute on function fairlead.jobs_with_key to fairlead_tenant;
