-- The jobs of the session's own tenant with a dedupe key. Their index is on a hash, which row-level security keeps a
-- tenant's own statements from using: it is not marked as leakproof, and only a superuser could mark it.
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
